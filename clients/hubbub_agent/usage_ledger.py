"""The file that stores an agent's usage over its restarts, for its owner alone."""

import json
import os
import re
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hubbub_agent.rules.limits import Minute, ModelUsage
from hubbub_client.numbers import is_finite, whole
from hubbub_client.payload import as_object, as_objects
from hubbub_shared.platform import files

VERSION = 1
MAX_BYTES = 1024 * 1024


class LedgerProblem(Exception):
    """The file cannot be used; the message says why, and what to do."""


class UsageLedger:
    """Reads and writes the file. Made by `open_locked`: only one agent at a time can use a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    @contextmanager
    def open_locked(cls, path: Path) -> Generator["UsageLedger"]:
        """Open and lock the file for a block, so that no other agent uses it. Raises LedgerProblem.

        The file need not exist yet. Its folder is made, and beside it a file that carries the lock.
        """
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise LedgerProblem(f"{path}: the usage cannot be kept there: {error}; name another file") from None
        try:
            if not files.lock(descriptor):
                other = "another agent counts its usage there; give this one a name of its own: hubbub --as NAME agent"
                raise LedgerProblem(f"{path}: {other}")
            yield cls(path)
        finally:
            os.close(descriptor)

    def read(self) -> Sequence[Minute]:
        """Return the usage of earlier runs, oldest first. Raises LedgerProblem."""
        try:
            with self._path.open("rb") as file:
                document = as_object(json.loads(file.read(MAX_BYTES)))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, RecursionError) as error:
            raise LedgerProblem(f"{self._path}: cannot be read: {error}; remove it to count from zero") from None
        if document.get("version") != VERSION:
            raise LedgerProblem(f"{self._path}: has another version; remove it to count from zero")
        minutes = [
            Minute(minute["since"], _read_usage(minute))
            for minute in as_objects(document.get("minutes"))
            if is_finite(minute.get("since"))
        ]
        return sorted(minutes, key=lambda minute: minute.since)

    def write(self, minutes: Sequence[Minute]) -> None:
        """Replace the file, whole or not at all. Raises OSError."""
        document = {
            "version": VERSION,
            "minutes": [{"since": minute.since, **asdict(minute.use)} for minute in minutes],
        }
        descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(document, file)
                file.flush()
                files.sync(file.fileno())
            Path(name).replace(self._path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise


def usage_file(data_dir: Path, agent_name: str) -> Path:
    """Return the path of the file for an agent's usage; unusual characters of the agent's name become `_`."""
    return data_dir / f"agent-{re.sub(r'[^A-Za-z0-9_.-]', '_', agent_name)[:64]}.json"


def _read_usage(minute: Mapping[str, Any]) -> ModelUsage:
    """Return the usage of a minute in the file; 0 for what is not a number."""
    tokens, requests, cost = whole(minute.get("tokens")), whole(minute.get("requests")), minute.get("cost")
    return ModelUsage(tokens or 0, cost if is_finite(cost) and cost > 0 else 0.0, requests or 0)
