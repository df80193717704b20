"""Starts the hub with the demo's configuration, says of each server how it is, and what to type next.

Arguments go to `hubbubd`. Where nobody reads at a terminal, only the hub's own line of JSON is printed, and its log.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubbub_cli.commands.up import run_in_foreground
from hubbub_local.daemon import find_log
from hubbub_shared.legible import clean

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

ENDPOINT = {"HUBBUBD_MCP_LISTEN": "127.0.0.1:7881"}
"""Where hosts find the demo, unless the environment says otherwise."""

NEXT = """
Hubbub serves its API on {address}. In a second terminal, type

    {client} call demo order_lunch

and answer the form there, or see it and answer it in a browser or from a third terminal:

    {client} web
    {client} inbox watch

See a call that waits until you approve it:

    {client} call demo tip_kitchen amount=20

Let an MCP host use all of it, for example Claude Code:

    claude mcp add hubbub -- {client} mcp

Ctrl-C here ends the hub and all its servers. Its log is in {log}.
"""


async def main() -> int:
    """Runs the hub until it ends; returns its exit code."""
    command = [str(BIN / "hubbubd"), "--config", "docs/demo/hubbub.toml", "--data-dir", ".hubbub", *sys.argv[1:]]
    env = ENDPOINT | os.environ
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return await run_in_foreground(command, _say_json, env=env, cwd=ROOT, aloud=False)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--data-dir", default=".hubbub")
    parser.add_argument("--log-file", type=Path)
    options = parser.parse_known_args()[0]
    log = options.log_file or find_log(str(ROOT / options.data_dir))
    command += ["--log-file", str(log)]
    return await run_in_foreground(command, lambda ready: _say_next(ready, log), env=env, cwd=ROOT)


async def _say_json(ready: Mapping[str, Any]) -> None:
    _say(json.dumps(ready, separators=(",", ":")))


async def _say_next(ready: Mapping[str, Any], log: Path) -> None:
    client = f"{BIN / 'hubbub'} --data-dir {ready['data_dir']}"  # absolute: it works in any folder
    _say(NEXT.format(address=ready["grpc"], client=client, log=log))
    if "mcp" in ready:
        _say(f"Hosts that speak HTTP find it at {ready['mcp']}; they log in there.")


def _say(text: str) -> None:
    print(clean(text), flush=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
