"""Starts a hub that goes on when the bridge ends (`hubbub mcp --start`)."""

import subprocess
import time
from contextlib import suppress
from pathlib import Path

from hubbub_client.errors import HubbubError
from hubbub_local import daemon

RESTART_PAUSE_S = 60.0
"""Seconds before a hub is started again."""


class HubStarter:
    """Starts hubs for a data directory; None: the default one. Of several hubs started at once, one gets the store."""

    def __init__(self, data_dir: str | Path | None) -> None:
        self._data_dir = None if data_dir is None else str(data_dir)
        self._started_at_s = -RESTART_PAUSE_S

    def start_hub(self) -> None:
        """Start a hub in a session of its own, unless one was started within RESTART_PAUSE_S. Failures are ignored."""
        if time.monotonic() < self._started_at_s + RESTART_PAUSE_S:
            return
        self._started_at_s = time.monotonic()
        with suppress(daemon.NotStarted, HubbubError):
            command = daemon.make_command(self._data_dir, log=daemon.find_log(self._data_dir))
            # What the hub writes to stderr before it opens its log goes to the bridge's stderr, which hosts keep.
            daemon.launch_hub(command, stdout=subprocess.DEVNULL, stderr=None)
