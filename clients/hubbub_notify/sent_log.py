"""What was sent to whom, on disk: written before it is sent, so that nobody is notified twice, also after a kill.

An attempt is `trying` from before it begins until its outcome is known. One that is still `trying` when the next
service starts was cut off: it may have arrived, so it is not repeated.
"""

import json
import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from hubbub_frontend.private_files import make_private_folder

AttemptOutcome = Literal["sent", "failed", "gave_up", "unknown"]
"""failed: it did not arrive, and is tried again; gave_up: not any more; unknown: it may have arrived."""

RETENTION_S = 7 * 86400.0
"""How long entries of pending requests that are not open any more are stored, seconds."""

_BUSY_S = 10.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS told (
  request TEXT NOT NULL, target TEXT NOT NULL, notice TEXT NOT NULL, owner TEXT NOT NULL, state TEXT NOT NULL,
  at REAL NOT NULL, PRIMARY KEY (request, target)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notices (at REAL NOT NULL, owner TEXT NOT NULL);
"""


class SentLogProblem(Exception):
    """The file cannot be read or written; the message says why."""


class SentLog:
    """The file, for one `owner`: a name for the service that uses it. Every method raises SentLogProblem."""

    def __init__(self, file: Path, owner: str) -> None:
        self._owner = owner
        self._file = file
        try:
            make_private_folder(file.parent)
            # Made here for its owner alone: SQLite would let others read it.
            os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
            self._store = sqlite3.connect(file, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._store.execute("PRAGMA synchronous = FULL")
            self._store.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise self._describe_problem(error) from None

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def mark_cut_off(self, targets: Collection[str]) -> list[str]:
        """Mark as `unknown` the attempts to these targets that a kill has cut off; return the ids of their requests."""
        rows = self._execute(
            "UPDATE told SET state = 'unknown' WHERE state = 'trying' AND owner = ?"
            " AND target IN (SELECT value FROM json_each(?)) RETURNING request",
            (self._owner, json.dumps([*targets])),
        )
        return sorted({str(request) for (request,) in rows})

    def list_notice_times(self, since_s: float) -> list[float]:
        """Return when notifications were made since `since_s`, all in seconds since 1970, ascending."""
        rows = self._execute("SELECT at FROM notices WHERE owner = ? AND at > ? ORDER BY at", (self._owner, since_s))
        return [at for (at,) in rows]

    def list_notified_requests(self, targets: Collection[str]) -> set[str]:
        """Return the ids of requests that none of these targets is still to be notified of; empty without targets."""
        if not targets:
            return set()
        rows = self._execute(
            "SELECT request FROM told WHERE state != 'failed' AND target IN (SELECT value FROM json_each(?))"
            " GROUP BY request HAVING count(*) = ?",
            (json.dumps([*targets]), len(targets)),
        )
        return {str(request) for (request,) in rows}

    def record_notice(self, now: float) -> None:
        """Record that a notification was made at `now` (seconds since 1970); delete records older than RETENTION_S."""
        self._execute("INSERT INTO notices VALUES (?, ?)", (now, self._owner))
        self._execute("DELETE FROM notices WHERE at < ?", (now - RETENTION_S,))

    def begin_attempt(self, notice: str, target: str, requests: Iterable[str]) -> list[str]:
        """Write durably that a target is about to be notified of requests by the notification with the id `notice`.

        Return the ids of the requests that may be sent: no service has notified the target of them, and no other
        attempt is under way.
        """
        now, attempted = time.time(), list[str]()
        self._execute("BEGIN IMMEDIATE", ())
        for request in requests:
            attempted += self._execute(
                "INSERT INTO told VALUES (?, ?, ?, ?, 'trying', ?) ON CONFLICT DO UPDATE"
                " SET state = 'trying', notice = excluded.notice, owner = excluded.owner, at = excluded.at"
                " WHERE state = 'failed' RETURNING request",
                (request, target, notice, self._owner, now),
            )
        self._execute("COMMIT", ())
        return [str(request) for (request,) in attempted]

    def end_attempt(self, notice: str, target: str, state: AttemptOutcome) -> None:
        """Write the outcome of an attempt. Durable on return.

        The outcome is also written if a service that was started meanwhile has marked the attempt as cut off.
        """
        self._execute(
            "UPDATE told SET state = ?, at = ? WHERE notice = ? AND target = ? AND state IN ('trying', 'unknown')",
            (state, time.time(), notice, target),
        )

    def delete_old(self, still_open: Collection[str]) -> None:
        """Delete the entries older than RETENTION_S of requests that are not open any more."""
        old_rows = self._execute("SELECT DISTINCT request FROM told WHERE at < ?", (time.time() - RETENTION_S,))
        self._execute("BEGIN", ())
        for (request,) in old_rows:
            if request not in still_open:
                self._execute("DELETE FROM told WHERE request = ?", (request,))
        self._execute("COMMIT", ())

    def _execute(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Run a statement of SQL, and return its rows. Raises SentLogProblem, and rolls back, if it fails."""
        try:
            return self._store.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            if self._store.in_transaction:
                self._store.rollback()
            raise self._describe_problem(error) from None

    def _describe_problem(self, error: OSError | sqlite3.Error) -> SentLogProblem:
        """Return the error that names the file and says why it cannot be used."""
        why = error.strerror if isinstance(error, OSError) else error
        return SentLogProblem(f"{self._file} cannot be used: {why}")
