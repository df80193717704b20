"""What the tour saw last (results.json), and the table for users that it makes (docs/hosts/README.md)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .known import KNOWN, Known

FILE = Path(__file__).with_name("results.json")
DOCUMENT = Path(__file__).resolve().parents[3] / "docs/hosts/README.md"
BEGIN, END = "<!-- Made by `python -m tests.hosts.real --table`: -->", "<!-- End of what is made. -->"
WAYS = ("http", "bridge")
LOG_IN = "log-in"
"""The way of programs that log in with a browser; logins.py tries it."""
OWNERS = {"host": "", "hub": "The hub's fault: ", "by design": "By design: "}

MARK = r"\*"
"""After the names of programs that log in."""

Seen = Mapping[str, Mapping[str, str]]
"""By way and stop what did not work; nothing for a stop that works."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one stop of the tour."""

    program: str
    version: str
    over: str
    stop: str
    works: bool
    seen: str

    @property
    def wrong(self) -> str:
        """What is not as it is known to be."""
        known = find_known(self.program, self.over, self.stop)
        if self.works:
            return "it works now: remove it from known.py" if known and known.always else ""
        return "" if known else self.seen

    def line(self) -> str:
        """The outcome as a row for people."""
        judged = "WRONG" if self.wrong else "ok" if self.works else "known"
        unfit = f"{self.wrong}: " if self.wrong and self.works else ""
        return f"{self.program:23}{self.over:8}{self.stop:20}{judged:6}{unfit}{self.seen}"


def find_known(program: str, over: str, stop: str) -> Known | None:
    """Return what is known of a stop."""
    return next((each for each in KNOWN if each.program == program and over in each.over and stop in each.stops), None)


def read_results() -> dict[str, Any]:
    """Return what is stored: by program its version, and by way what each stop came to."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def store(outcomes: Sequence[Outcome]) -> None:
    """Keep outcomes in place of earlier ones; those of another version of the program are gone then.

    What works now and then is kept as what fails.
    """
    results = read_results()
    for each in outcomes:
        kept: dict[str, Any] | None = results.get(each.program)
        if kept is None or kept["version"] != each.version:
            kept = results[each.program] = {"version": each.version}
        known = find_known(each.program, each.over, each.stop)
        works = each.works and (known is None or known.always)
        kept.setdefault(each.over, {})[each.stop] = "works" if works else "fails"
    FILE.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def make_table(results: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """Return the table of what was seen, a row for each program of `titles` by its name."""
    lines = ["| Host | Version | Over HTTP | Over the bridge | What does not work |", "|---|---|---|---|---|"]
    for name, title in titles.items():
        if seen := results.get(name):
            counts = [_count(seen.get(way)) for way in WAYS]
            page = DOCUMENT.with_name(f"{name}.md")
            title = f"[{title}]({page.name})" if page.exists() else title
            mark = MARK if _has_logged_in(seen) else ""
            lines.append(f"| {title}{mark} | {seen['version']} | {counts[0]} | {counts[1]} | {_explain(name, seen)} |")
    return "\n".join(lines) + "\n"


def _has_logged_in(seen: Mapping[str, Any]) -> bool:
    return all(seen.get(LOG_IN, {}).get(stop) == "works" for stop in ("log-in", "call"))


def _count(stops: Mapping[str, str] | None) -> str:
    if stops is None:
        return "-"
    works = sum(each == "works" for each in stops.values())
    return "all" if works == len(stops) else f"{works} of {len(stops)}"


def _explain(name: str, seen: Mapping[str, Any]) -> str:
    """Return a sentence for each thing that does not work, and where it does not if it does elsewhere."""
    sentences: dict[str, None] = {}
    for way in (*WAYS, LOG_IN):
        for stop, outcome in seen.get(way, {}).items():
            known = find_known(name, way, stop)
            if outcome == "fails":
                said = f"{OWNERS[known.owner]}{known.sentence}" if known else f"{stop}: not explained yet"
                sentences[said] = None
    return " ".join(sentences)


def write_table(titles: Mapping[str, str]) -> None:
    """Write the table into the document, between its markers."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{make_table(read_results(), titles)}\n{END}{after}")


def read_table() -> str:
    """Return the table that the document has."""
    return DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0].strip() + "\n"
