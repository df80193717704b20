"""Starts the hub with the demo's configuration and says what to type next. Arguments go to `hubbubd`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

NEXT = """
Hubbub serves its API on {address}. In a second terminal, in this folder, type

    {client} call demo order_lunch

and answer the form there, or see it and answer it in a browser or from a third terminal:

    {client} web
    {client} inbox watch

Ctrl-C here ends the hub and all its servers.
"""


def main() -> int:
    """Runs the hub until it ends; returns its exit code."""
    command = [BIN / "hubbubd", "--config", "docs/demo/hubbub.toml", "--data-dir", ".hubbub", *sys.argv[1:]]
    # In a session of its own, so that Ctrl-C reaches the hub once: from here.
    with subprocess.Popen(  # noqa: S603  (the hub itself)
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as hub:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, lambda *_: hub.terminate())
        assert hub.stdout is not None
        for line in hub.stdout:
            print(line, end="", flush=True)
            ready = _ready(line)
            if ready is not None:
                client = f"{os.path.relpath(BIN, ROOT)}/hubbub --data-dir {os.path.relpath(ready['data_dir'], ROOT)}"
                print(NEXT.format(address=ready["grpc"], client=client), flush=True)
    return hub.returncode


def _ready(line: str) -> dict[str, str] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and event.get("event") == "ready" else None


if __name__ == "__main__":
    sys.exit(main())
