"""The last results of the hub, stored for the time when it is away: the handshake, and the first page of the tools."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

MAX_BYTES = 16 * 1024 * 1024
"""The largest file that is read or written."""

MAX_RESULTS = 32
"""The most results that are stored of one endpoint: a few methods in a few revisions."""


class ResponseCache:
    """Results by method and audience, in a file of one endpoint and one address; only in memory if the disk fails.

    The audience is the revision; for lists of tools also whether a host shows apps.
    """

    def __init__(self, directory: Path | None, *identity: str | None) -> None:
        name = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]
        self._file = directory / "mcp" / f"{name}.json" if directory else None
        self._results = self._load()

    def find(self, method: str, audience: str) -> dict[str, Any] | None:
        """Return the last result of the hub; None if no result is stored."""
        result = self._results.get(f"{method} {audience}")
        return cast("dict[str, Any]", result) if isinstance(result, dict) else None

    def store(self, method: str, audience: str, result: Mapping[str, Any]) -> None:
        """Store a result in memory and on disk, unless it is the same as before; beyond MAX_RESULTS drop the oldest."""
        key = f"{method} {audience}"
        if self._results.get(key) == result:
            return
        self._results.pop(key, None)
        self._results[key] = dict(result)
        while len(self._results) > MAX_RESULTS:
            del self._results[next(iter(self._results))]
        self._save()

    def _load(self) -> dict[str, Any]:
        """Return the results in the file; {} if the file is missing, larger than MAX_BYTES, or cannot be read."""
        with suppress(OSError, ValueError, RecursionError):
            if self._file is not None and self._file.is_file() and self._file.stat().st_size <= MAX_BYTES:
                content: object = json.loads(self._file.read_bytes())
                if isinstance(content, dict):
                    return cast("dict[str, Any]", content)
        return {}

    def _save(self) -> None:
        """Write all results to the file, unless they are larger than MAX_BYTES. If that fails, they stay in memory."""
        if self._file is None:
            return
        content = json.dumps(self._results, separators=(",", ":")).encode()
        if len(content) > MAX_BYTES:
            return
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, exist_ok=True)  # without parents: the hub makes its data directory
            descriptor, temporary = tempfile.mkstemp(dir=self._file.parent)  # a file that only its owner can read
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                Path(temporary).replace(self._file)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
