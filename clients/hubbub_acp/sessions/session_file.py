"""Stores the sessions of an agent, with their folders, in a file that later processes read."""

import asyncio
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import orjson

from hubbub_acp.log import log
from hubbub_acp.sessions.permissions import ID_CHARACTERS
from hubbub_acp.sessions.session import AgentSession
from hubbub_acp.values import as_object
from hubbub_frontend.private_files import make_private_folder, write_private
from hubbub_shared.platform import files

MAX_STORED: Final = 100
"""The most sessions of an agent that are kept: those used last."""

FILE_BYTES: Final = 1024 * 1024
"""The most bytes of the file; a larger one is not of this program, and is not read."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """What the file has of a session. `turn` is the id of the turn under way, "" if none was."""

    id: str
    cwd: str
    title: str
    started_at: str
    updated_at: str
    turns: int
    turn: str = ""

    @classmethod
    def from_session(cls, session: AgentSession) -> "StoredSession":
        """Return what the file is to have of a session."""
        return cls(
            id=session.id,
            cwd=session.cwd,
            title=session.title,
            started_at=session.started_at,
            updated_at=session.updated_at,
            turns=session.turns,
            turn=session.turn.id if session.turn is not None else session.interrupted,
        )


class SessionFile:
    """The file of one agent, by its name and command. Several processes may write it, each its own sessions."""

    def __init__(self, folder: Path | None, name: str, command: Sequence[str]) -> None:
        digest = hashlib.sha256("\0".join((name, *command)).encode(errors="surrogateescape")).hexdigest()[:16]
        self._path = None if folder is None else folder / f"{digest}.json"
        self._unsaved: Mapping[str, AgentSession] | None = None
        self._saving: asyncio.Task[None] | None = None

    def read(self) -> list[StoredSession]:
        """Return the stored sessions, the latest first; none if there is no file that can be read. Blocks."""
        if self._path is None:
            return []
        try:
            with self._path.open("rb") as file:
                raw = file.read(FILE_BYTES + 1)
            entries: Any = orjson.loads(raw) if len(raw) <= FILE_BYTES else []
        except FileNotFoundError:
            return []
        except (OSError, orjson.JSONDecodeError) as exc:
            log(f"hubbub acp: {self._path} cannot be read, so earlier sessions are not known: {exc}")
            return []
        listed = cast("list[Any]", entries)[: 2 * MAX_STORED] if isinstance(entries, list) else []
        found = [session for each in listed if (session := _read_entry(each)) is not None]
        return sorted(found, key=lambda each: each.updated_at, reverse=True)[:MAX_STORED]

    def write(self, sessions: Iterable[StoredSession]) -> None:
        """Write these sessions into the file, beside those of other processes; the oldest are dropped. Blocks."""
        if self._path is None:
            return
        try:
            make_private_folder(self._path.parent)
            lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                files.lock(lock, wait=True)
                merged = {each.id: each for each in self.read()} | {each.id: each for each in sessions}
                newest = sorted(merged.values(), key=lambda each: each.updated_at, reverse=True)[:MAX_STORED]
                write_private(self._path, orjson.dumps(newest))
            finally:
                os.close(lock)
        except OSError as exc:
            log(f"hubbub acp: {self._path} cannot be written, so sessions are not found after a restart: {exc}")

    def write_soon(self, sessions: Mapping[str, AgentSession]) -> None:
        """Write the sessions in the background. During a write, further calls cause one more write after that."""
        self._unsaved = sessions
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._write_unsaved())

    async def wait_until_saved(self) -> None:
        """Wait until the sessions of the last `write_soon` are in the file."""
        if self._saving is not None:
            await asyncio.wait({self._saving})

    async def _write_unsaved(self) -> None:
        """Write the sessions, and again for each `write_soon` during a write."""
        while self._unsaved is not None:
            sessions, self._unsaved = self._unsaved, None
            await asyncio.to_thread(self.write, [StoredSession.from_session(each) for each in sessions.values()])


def _read_entry(value: object) -> StoredSession | None:
    """Return a stored session; None for an entry that cannot be read."""
    entry = as_object(value)
    texts = [entry.get(key, "") for key in ("id", "cwd", "title", "started_at", "updated_at", "turn")]
    if not all(isinstance(text, str) and len(text) <= 4096 for text in texts) or not 0 < len(texts[0]) <= ID_CHARACTERS:
        return None
    turns = entry.get("turns")
    *basic, turn = texts
    return StoredSession(*basic, turns=turns if isinstance(turns, int) and 0 <= turns < 2**31 else 0, turn=turn)
