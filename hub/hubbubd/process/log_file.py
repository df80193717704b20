"""The log in a file of bounded size: what is full is renamed, and the oldest of these is deleted."""

import logging
import os
from io import FileIO, TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import BinaryIO, Final, cast

MAX_BYTES: Final = 5 * 1024 * 1024
"""Bytes of the file before it is renamed to FILE.1."""

MAX_FILES: Final = 3
"""How many renamed files stay."""

STDERR: Final = 2
"""The descriptor of standard error."""


class RotatedLog(RotatingFileHandler):
    """A file to write lines to, from any thread, readable by its owner only. Raises OSError if it cannot be opened.

    A line that cannot be written is lost: a full disk must not end the hub.
    """

    terminator = ""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._has_stderr = False
        super().__init__(path, maxBytes=max_bytes, backupCount=MAX_FILES, encoding="utf-8", errors="replace")

    def write(self, text: str, /) -> None:
        """Write a line, which has its line end already."""
        self.handle(logging.makeLogRecord({"msg": text}))

    def redirect_stderr(self) -> None:
        """Redirect this process's stderr to the file from now on, after each rotation too."""
        self._has_stderr = True
        if self.stream is not None:
            os.dup2(self.stream.fileno(), STDERR)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - as `logging` calls it
        """Drop a line that cannot be written."""

    def _open(self) -> TextIOWrapper:
        """Open the file with mode 0600, unbuffered; stderr follows if it was redirected. Raises OSError."""
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        # Unbuffered: what a full disk does not take is lost, and does not stand in the way of the next line.
        raw = cast("BinaryIO", FileIO(descriptor, "a"))
        opened = TextIOWrapper(raw, encoding=self.encoding, errors=self.errors, write_through=True)
        if self._has_stderr:
            os.dup2(descriptor, STDERR)
        return opened
