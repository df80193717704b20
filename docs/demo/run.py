"""Starts the hub with the demo's configuration, says of each server how it is, and what to type next.

Arguments go to `hubbubd`.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubbub_cli.up import foreground
from hubbub_client.legible import clean

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

ENDPOINT = {"HUBBUBD_MCP_LISTEN": "127.0.0.1:7881"}
"""Where hosts find the demo, unless the environment says otherwise."""

NEXT = """
Hubbub serves its API on {address}. In a second terminal, in this folder, type

    {client} call demo order_lunch

and answer the form there, or see it and answer it in a browser or from a third terminal:

    {client} web
    {client} inbox watch

Let an MCP host use all of it, for example Claude Code:

    claude mcp add hubbub -- {host}

Ctrl-C here ends the hub and all its servers.
"""


async def main() -> int:
    """Runs the hub until it ends; returns its exit code."""
    command = [str(BIN / "hubbubd"), "--config", "docs/demo/hubbub.toml", "--data-dir", ".hubbub", *sys.argv[1:]]
    return await foreground(command, _say_next, env=ENDPOINT | os.environ, cwd=ROOT)


async def _say_next(ready: Mapping[str, Any]) -> None:
    _say(json.dumps(ready, separators=(",", ":")))
    client = f"{os.path.relpath(BIN, ROOT)}/hubbub --data-dir {os.path.relpath(ready['data_dir'], ROOT)}"
    host = f"{BIN / 'hubbub'} --data-dir {ready['data_dir']} mcp"  # absolute: a host starts it from elsewhere
    _say(NEXT.format(address=ready["grpc"], client=client, host=host))
    if "mcp" in ready:
        _say(f"Hosts that speak HTTP find it at {ready['mcp']}; they need a token.")


def _say(text: str) -> None:
    print(clean(text), flush=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
