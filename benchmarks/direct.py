"""Connects the SDK's client to each URL on stdin, calls each server once, and ends: what `many.py` compares with."""

import sys

import anyio
import mcp


async def main(urls: list[str]) -> None:
    async with anyio.create_task_group() as tasks:
        for url in urls:
            tasks.start_soon(_call_server, url)


async def _call_server(url: str) -> None:
    async with mcp.Client(url) as client:
        assert not (await client.call_tool("echo", {"text": "x"})).is_error


if __name__ == "__main__":
    anyio.run(main, sys.stdin.read().split())
