"""The log in a file of bounded size: a full file is renamed, and the oldest renamed file is deleted."""

import logging
import os
from io import FileIO, TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import BinaryIO, Final, cast

MAX_BYTES: Final = 5 * 1024 * 1024
"""Bytes of the file before it is renamed to FILE.1."""

MAX_FILES: Final = 3
"""How many renamed files are kept."""

STDERR: Final = 2
"""The descriptor of standard error."""


class RotatedLog(RotatingFileHandler):
    """A file to write lines to, from any thread, readable by its owner only. Raises OSError if it cannot be opened.

    A line that cannot be written is lost: a full disk must not end the hub.
    """

    terminator = ""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._receives_stderr = False  # whether stderr is redirected to the file
        super().__init__(path, maxBytes=max_bytes, backupCount=MAX_FILES, encoding="utf-8", errors="replace")

    def write(self, line: str, /) -> None:
        """Write a line, which includes its line end."""
        self.handle(logging.makeLogRecord({"msg": line}))

    def redirect_stderr(self) -> None:
        """Redirect this process's stderr to the file from now on, after each rotation too."""
        self._receives_stderr = True
        if self.stream is not None:
            os.dup2(self.stream.fileno(), STDERR)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - as `logging` calls it
        """Drop a line that cannot be written."""

    def _open(self) -> TextIOWrapper:
        """Open the file with mode 0600, unbuffered; redirect stderr to it, if that was requested. Raises OSError."""
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        # Unbuffered: a line that a full disk refuses is lost, rather than kept in a buffer before the next lines.
        raw = cast("BinaryIO", FileIO(descriptor, "a"))
        stream = TextIOWrapper(raw, encoding=self.encoding, errors=self.errors, write_through=True)
        if self._receives_stderr:
            os.dup2(descriptor, STDERR)
        return stream
