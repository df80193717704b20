"""Audit of an agent: one line of JSON for each pending request that it decided on."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO

from hubbub_client.data.records import PendingRequest

Outcome = Literal["answered", "left", "refused", "failed", "lost", "would"]
"""answered: accepted; left: to people; refused: somebody else was first; failed: an error, so left to people; lost: the
assignment was revoked meanwhile; would: in a dry run."""


class DecisionAudit:
    """Writes one whole line per pending request. Text of servers is escaped; answers are not stored."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    @classmethod
    @contextmanager
    def append_to(cls, path: Path) -> Generator["DecisionAudit"]:
        """Open an audit for a block, which appends to a file that only its owner can read. Raises OSError."""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "w") as file:
            yield cls(file)

    def record_outcome(self, request: PendingRequest, rule: str | None, outcome: Outcome, **fields: Any) -> None:
        """Write the outcome of a pending request. `rule` is the name of the rule that decided, None if none did.

        `fields` are further fields; those that are None are left out.
        """
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request": request.id,
            "server": request.server,
            "kind": request.kind,
            "rule": rule,
            "outcome": outcome,
            **{name: value for name, value in fields.items() if value is not None},
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
