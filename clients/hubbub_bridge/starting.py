"""Starts a hub that goes on when the bridge ends (`hubbub mcp --start`)."""

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

AGAIN_S = 60.0
"""Seconds before a hub is started again."""


class StartedHub:
    """A hub for one data directory, by default the default one. Of several that start at once, one gets the store."""

    def __init__(self, data_dir: str | None) -> None:
        self._data_dir = data_dir or os.environ.get("HUBBUB_DATA_DIR")
        self._started = -AGAIN_S

    def start(self) -> None:
        """Start it in a session of its own, unless that was done a moment ago. That it fails, its absence shows."""
        if time.monotonic() < self._started + AGAIN_S:
            return
        self._started = time.monotonic()
        beside = Path(sys.executable).with_name("hubbubd")
        command = str(beside) if beside.exists() else shutil.which("hubbubd")
        if command is None:
            return
        words = [command, *(["--data-dir", self._data_dir] if self._data_dir else [])]
        with suppress(OSError):
            # Its log goes where the host keeps the bridge's.
            subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
