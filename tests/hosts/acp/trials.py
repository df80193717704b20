"""What came of what was tried with coding agents, where it is kept, and the table of it in docs/agents-behind.md."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .coders import Coder

STORED = Path(__file__).with_name("results.json")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "agents-behind.md"
BEGIN = "<!-- Made by `python -m tests.hosts.acp --table`: -->"
END = "<!-- End of what is made. -->"

KNOWN: Mapping[tuple[str, str], str] = {
    ("gemini", "hub killed at first"): "A session loaded in the minute that it began in is lost.",
    ("copilot", "hub's tools"): "No `--mcp`: `hubbub mcp install copilot-cli` instead.",
}
"""By agent and by what was tried, what does not work and is the agent's own: a sentence for the table."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one thing that was tried with one agent; `wrong` is empty where it works."""

    coder: str
    version: str
    stop: str
    wrong: str

    @property
    def is_as_known(self) -> bool:
        """Whether it works where it should, and fails where it is known to."""
        return bool(self.wrong) == ((self.coder, self.stop) in KNOWN)

    def line(self) -> str:
        """What is printed."""
        judged = "works" if not self.wrong else "fails" if self.is_as_known else "WRONG"
        return f"{self.coder:10}{self.version:10}{self.stop:20}{judged:7}{self.wrong}"


def read_results() -> dict[str, Any]:
    """Return what is stored: by agent its version, and what came of each thing that was tried."""
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def store(trials: Sequence[Trial]) -> None:
    """Put them in the place of those of the same agents that were stored."""
    stored = read_results()
    for trial in trials:
        kept = stored.setdefault(trial.coder, {})
        kept["version"] = trial.version
        kept.setdefault("tried", {})[trial.stop] = "fails" if trial.wrong else "works"
    STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


def make_table(stored: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the table: a row for each agent that was tried."""
    rows = ["| `--agent` | Version | Works | What does not |", "|---|---|---|---|"]
    for name in names:
        if (found := stored.get(name)) is None:
            continue
        tried: Mapping[str, str] = found["tried"]
        failed = [stop for stop, came in tried.items() if came == "fails"]
        works = f"{len(tried) - len(failed)} of {len(tried)}" if failed else "all"
        sentences = " ".join(KNOWN.get((name, stop), f"{stop}.") for stop in failed)
        rows.append(f"| `{name}` | {found['version']} | {works} | {sentences} |")
    return "\n".join(rows)


def read_table() -> str:
    """Return the table as the page has it."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip()


def write_table(coders: Sequence[Coder]) -> None:
    """Write the table of what is stored into the page."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    table = make_table(read_results(), [each.name for each in coders])
    PAGE.write_text(f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}")
