"""A host that leaves while the hub takes no more of what it says."""

import asyncio
import os
from pathlib import Path

import pytest

from hubbub_bridge import bridge, uplink
from hubbub_bridge.options import BridgeOptions
from hubbub_client.transport.discovery import HubLocation

LIMIT_S = 60
LINE = b'{"jsonrpc":"2.0","method":"notifications/x"}\n'


class Full:
    """An uplink that never has room."""

    connected, has_capacity = True, False

    def __init__(self) -> None:
        self.blocked, self.left = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        await self.left.wait()

    async def wait_for_capacity(self) -> None:
        self.blocked.set()
        await asyncio.Event().wait()

    def leave(self) -> None:
        self.left.set()


async def test_the_bridge_ends_though_the_hub_does_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, made = Full(), asyncio.Event()

    def make(*_: object) -> Full:
        made.set()
        return full

    monkeypatch.setattr(uplink, "Uplink", make)
    (stdin, host_out), (host_in, stdout) = os.pipe(), os.pipe()
    endpoint = BridgeOptions(where=HubLocation(data_dir=str(tmp_path)), version="1")
    try:
        async with asyncio.timeout(LIMIT_S):
            serving = asyncio.create_task(bridge.serve(endpoint, stdin, stdout))
            os.write(host_out, LINE)
            await made.wait()
            os.write(host_out, LINE)
            await full.blocked.wait()
            os.write(host_out, LINE)
            os.close(host_out)
            await serving
        assert full.left.is_set()
    finally:
        for end in (stdin, host_in, stdout):
            os.close(end)
