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

KNOWN: Mapping[tuple[str, str], str] = {}
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
        return f"{self.coder:10}{self.version:10}{self.stop:14}{judged:7}{self.wrong}"


def store(trials: Sequence[Trial]) -> None:
    """Put them in the place of those of the same agents that were stored."""
    stored: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    for trial in trials:
        kept = stored.setdefault(trial.coder, {})
        kept["version"] = trial.version
        kept.setdefault("tried", {})[trial.stop] = "fails" if trial.wrong else "works"
    STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


def make_table(stored: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """Return the table: a row for each agent that was tried."""
    rows = ["| Agent | `--agent` | Version | Works | What does not |", "|---|---|---|---|---|"]
    for name, title in titles.items():
        if (found := stored.get(name)) is None:
            continue
        tried: Mapping[str, str] = found["tried"]
        failed = [stop for stop, came in tried.items() if came == "fails"]
        works = f"{len(tried) - len(failed)} of {len(tried)}" if failed else "all"
        sentences = " ".join(KNOWN.get((name, stop), f"{stop}.") for stop in failed)
        rows.append(f"| {title} | `{name}` | {found['version']} | {works} | {sentences} |")
    return "\n".join(rows)


def write_table(coders: Sequence[Coder]) -> None:
    """Write the table of what is stored into the page."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    table = make_table(json.loads(STORED.read_text()), {each.name: each.title for each in coders})
    PAGE.write_text(f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}")
