"""The tables of docs/mcp.md that say what becomes of each method, as rows, with the tests that show them."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DOCUMENT: Final = Path(__file__).parents[1] / "docs/mcp.md"
SHOWN: Final[dict[str, dict[str, list[str] | str]]] = tomllib.loads(
    (Path(__file__).parent / "repo/shown_by.toml").read_text(encoding="utf-8")
)
"""By the name of a table and the first cell of a row: the tests that show it, or a sentence why none does."""
TO_HUB, TO_HOST = "From a host to the hub", "From the hub to a host"
WORDS: Final = {
    TO_HUB: {"hub", "passed on", "refused", "ignored"},
    TO_HOST: {"hub", "passed on", "in results", "never"},
}
REVISIONS: Final = ("before 2025-11-25", "2025-11-25", "2026-07-28")
"""The columns."""

_ROW = re.compile(r"^\| ([a-z]\w*(?:/\w+)*) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """What becomes of a method of one direction, by column, and the tests that show it."""

    method: str
    fates: dict[str, str]
    shown: list[str] | str

    @property
    def is_notification(self) -> bool:
        return self.method.startswith("notifications/")


def _rows(direction: str) -> list[Row]:
    section = DOCUMENT.read_text(encoding="utf-8").split(f"### {direction}\n")[1].split("\n#")[0]
    return [
        Row(method, dict(zip(REVISIONS, fates, strict=True)), SHOWN[direction][method])
        for method, *fates in _ROW.findall(section)
    ]


ROWS: Final = {direction: _rows(direction) for direction in WORDS}
