"""What an agent did: one line of JSON for each request that it had to decide on."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO

from hubbub_client.records import PendingRequest

Outcome = Literal["answered", "left", "refused", "failed", "lost", "would"]
"""answered; left to people; refused as somebody else was first; failed, and so left; no longer the agent's while it
was at it; what it would have done."""


class Audit:
    """Writes lines, each whole and at once. What servers wrote is escaped, and the answers themselves are not kept."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    @classmethod
    @contextmanager
    def to(cls, path: Path) -> Generator["Audit"]:
        """At the end of a file, which is its owner's alone. Raises OSError."""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "w") as file:
            yield cls(file)

    def note(self, request: PendingRequest, rule: str | None, outcome: Outcome, **more: Any) -> None:
        """Writes what became of a request."""
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request": request.id,
            "server": request.server,
            "kind": request.kind,
            "rule": rule,
            "outcome": outcome,
            **{name: value for name, value in more.items() if value is not None},
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
