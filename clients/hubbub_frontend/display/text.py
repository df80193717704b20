"""Text of servers, made fit for a screen: escaped and bounded."""

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from rich.text import Text

from hubbub_frontend.display.records import IMITATES, may_imitate_host, url_host
from hubbub_shared.legible import NOT_LEGIBLE, clean, is_clean

# Limits in characters: for a detail, and for a line of a list.
MAX_CHARS = 20_000
MAX_LINE_CHARS = 300
LABEL_WIDTH = 13

# One colour per state, for all kinds of records.
STYLES = {
    "connected": "green",
    "completed": "green",
    "answered": "green",
    "delivered": "green",
    "fresh": "green",
    "connecting": "yellow",
    "disconnecting": "yellow",
    "waiting_input": "yellow",
    "input_required": "yellow",
    "open": "yellow",
    "pending": "yellow",
    "late": "yellow",
    "gave_up": "red",
    "stale": "yellow",
    "call is over": "yellow",
    "perhaps waiting": "yellow",
    "in_progress": "cyan",
    "working": "cyan",
    "error": "red",
    "failed": "red",
    "tool error": "red",
    "declined": "red",
    "approved": "green",
    "denied": "red",
    "refused": "red",
    "dismissed": "dim",
    "probably gone": "dim",
    "expired": "red",
    "withdrawn": "red",
}


def safe_text(value: object, limit: int = MAX_CHARS) -> str:
    """Return a value as text that cannot steer a terminal, at most `limit` characters, and how many are left out."""
    text = str(value)
    omitted = len(text) - limit
    return clean(text[:limit]) + (f"… ({omitted} characters more)" if omitted > 0 else "")


def line(value: object, limit: int = MAX_LINE_CHARS) -> str:
    """Return a value as one line of at most `limit` characters, fit for a terminal."""
    text = str(value)[: limit + 1]
    return clean(" ".join(text.split()))[:limit] + ("…" if len(text) > limit else "")


def editable_json(value: Any) -> str:
    """Return a value as JSON for editing. Characters unfit for a screen are escaped, so the value stays the same."""
    document = json.dumps(value, indent=2, ensure_ascii=False)
    return NOT_LEGIBLE.sub(lambda match: _escape(match[0]), document)


def _escape(character: str) -> str:
    """Return a character as JSON escapes it: `\\u202e`."""
    return json.dumps(character)[1:-1]


def styled_state(name: str | None) -> Text:
    """Return the name of a state, in its colour."""
    return Text(line((name or "-").replace("_", " ")), style=STYLES.get(name or "", ""))


def time_left(deadline: datetime | None) -> Text:
    """Return the time until a deadline: `4:59`, `2 h`, red in its last minute; `-` without a deadline."""
    if deadline is None:
        return Text("-", style="dim")
    seconds = int((deadline - datetime.now(UTC)).total_seconds())
    if seconds < 0:
        return Text("over", style="red")
    if seconds >= 3600:
        return Text(f"{seconds // 3600} h", style="dim")
    return Text(f"{seconds // 60}:{seconds % 60:02}", style="bold red" if seconds < 60 else "")


def render_url(url: str) -> Text:
    """Render a whole url with its host marked, and a warning below if it may imitate another.

    MCP client/elicitation, url mode. Characters that do not belong into a url are shown by their numbers.
    """
    escaped = "".join(
        character if character.isprintable() and is_clean(character) else _escape(character)
        for character in url[:MAX_CHARS]
    )
    text = Text(escaped)
    host = url_host(url)
    if host:
        host_at = escaped.lower().find(host, escaped.find("//") + 2 if "//" in escaped else 0)
        if host_at >= 0:
            text.stylize("bold reverse", host_at, host_at + len(host))
    for warning in _url_warnings(url, host):
        text.append(f"\n⚠ {line(warning)}", style="bold red")
    return text


def _url_warnings(url: str, host: str | None) -> list[str]:
    """Return in words which parts of a URL may deceive its reader."""
    if not host:
        return ["this is not a url with a host"]
    warnings = [IMITATES] if may_imitate_host(url) else []
    if not url.isprintable() or not url.isascii():
        warnings.append("it has characters that urls do not have")
    if "@" in urlsplit(url).netloc:
        warnings.append(f"what stands before the @ is not where it leads: that is {host}")
    if urlsplit(url).scheme != "https":
        warnings.append("what is typed there can be read on its way: this is not https")
    return warnings


class DetailText:
    """Builder for a detail: facts, headings, texts and JSON. A method adds nothing for an empty value."""

    def __init__(self) -> None:
        self.text = Text()

    def fact(self, label: str, value: object, style: str = "") -> "DetailText":
        """Add a line with a label and a value."""
        if value is not None and value != "":
            self.text.append(f"{label:{LABEL_WIDTH}} ", style="dim")
            self.paragraph(value, style)
        return self

    def heading(self, title: str) -> "DetailText":
        """Add a heading. `title` must be a text of this program: it is not made safe."""
        self.text.append(f"\n{title}\n", style="bold")
        return self

    def paragraph(self, value: object, style: str = "") -> "DetailText":
        """Add a text of any length; a value that is no `Text` is made safe."""
        if value is not None and value != "":
            text = value if isinstance(value, Text) else Text(safe_text(value), style=style)
            self.text.append_text(text).append("\n")
        return self

    def defect(self, problem: str | None) -> "DetailText":
        """Add the problem that keeps a part of a record from being shown; nothing for a whole record."""
        return self.paragraph(f"not all of this can be shown: {line(problem)}" if problem else None, "red")

    def json(self, value: Any) -> "DetailText":
        """Add a value as indented JSON."""
        return self.paragraph(json.dumps(value, indent=2, ensure_ascii=False))
