"""What each error means and what to do: `errors.toml` beside this module has it, for people and for the site."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent / "errors.toml"
CODE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,80}")


@dataclass(frozen=True)
class ErrorHelp:
    """The help about one error code, in Markdown."""

    meaning: str
    advice: str
    example: str = ""

    @property
    def summary(self) -> str:
        """Return the first sentence of the meaning, on one line."""
        first_paragraph = " ".join(self.meaning.partition("\n\n")[0].split())
        return re.split(r"(?<=[.:;])\s", first_paragraph)[0].rstrip(":;")


@cache
def entries() -> Mapping[str, ErrorHelp]:
    """Return the help about each error, by code."""
    tables = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    return {code: ErrorHelp(**{key: text.strip() for key, text in table.items()}) for code, table in tables.items()}


def render_page(code: str) -> str:
    """Return the page about a code, as Markdown with links as the site has them.

    Raises:
        KeyError: there is no such code.
    """
    entry = entries()[code]
    example = f"## Example\n\n{entry.example}\n\n" if entry.example else ""
    return f"# {code}\n\n{entry.meaning}\n\n{example}## What to do\n\n{entry.advice}\n"


def render_plain_page(code: str) -> str | None:
    """Return the page about a code, as Markdown without links to other documents; None if there is none."""
    written_code = normalize_code(code)
    if written_code not in entries():
        return None
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", render_page(written_code))


def code_summaries() -> Sequence[tuple[str, str]]:
    """Return each code with the first sentence about it."""
    return [(code, entry.summary) for code, entry in entries().items()]


def normalize_code(code: str) -> str:
    """Return a code as it is written in errors: `server-not-found` is SERVER_NOT_FOUND."""
    return code.strip().replace("-", "_").replace(" ", "_").upper()


def help_hint(code: str, help_url: str | None) -> str | None:
    """Return the command that explains a code, or a link about it; None if nothing is known.

    `help_url` counts only if it is a whole URL, as from a hub with a `help_base_url`.
    """
    link = help_url if help_url and "://" in help_url else None
    if not CODE.fullmatch(code) or code.upper() not in entries():
        return link
    command = f"hubbub explain {code}"
    return f"{command}, {link}" if link else command
