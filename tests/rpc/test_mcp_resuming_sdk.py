"""The SDK's client goes on after its connections broke: the tool runs once, and the result arrives."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import SocketStream
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from hubbubd.rpc.mcp import transport

from ..runtime.peer import Outcome, PeerLink, Sent
from .conftest import LIMIT_S
from .mcp_host import ONE, RIGHT, stage


class Wire:
    """Carries connections to a port, until it is cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: set[SocketStream] = set()

    async def carry(self, near: SocketStream) -> None:
        """One connection."""
        async with near, await anyio.connect_tcp("127.0.0.1", self._port) as far:
            self._open |= {near, far}
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._pass_on, near, far, tasks.cancel_scope)
                tasks.start_soon(self._pass_on, far, near, tasks.cancel_scope)
            self._open -= {near, far}

    async def cut(self) -> None:
        """Breaks all connections; later ones are carried."""
        for stream in list(self._open):
            await anyio.aclose_forcefully(stream)

    async def _pass_on(self, here: SocketStream, there: SocketStream, end: anyio.CancelScope) -> None:
        try:
            async for data in here:
                await there.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        end.cancel()


@asynccontextmanager
async def wired(url: str) -> AsyncGenerator[tuple[Wire, str]]:
    """A wire to where the hub is, and where it begins."""
    wire = Wire(int(url.rpartition(":")[2]))
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, wire.carry)
        yield wire, f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


async def test_a_client_that_loses_its_connections_gets_the_result_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "PRIME_S", 0.01)
    monkeypatch.setattr(transport, "RETRY_MS", 10)
    plain: Any = PeerLink.hello
    whole = property(lambda link: replace(plain.fget(link), server_info={"name": "peer", "version": "1"}))
    monkeypatch.setattr(PeerLink, "hello", whole)
    go, heard = anyio.Event(), anyio.Event()

    async def slow(_: Sent) -> Outcome:
        await go.wait()
        return {"content": [{"type": "text", "text": "here"}]}

    async def on_progress(*_: Any) -> None:
        heard.set()

    results: list[Any] = []
    async with stage(tmp_path) as made, wired(made.base) as (wire, base):
        made.peers["one"].behaviour = slow
        async with (
            httpx2.AsyncClient(headers=RIGHT, trust_env=False, timeout=LIMIT_S) as http,
            Client(streamable_http_client(f"{base}{ONE}", http_client=http), mode="legacy") as client,
            anyio.create_task_group() as tasks,
        ):

            async def call() -> None:
                results.append(await client.call_tool("t", {}, progress_callback=on_progress))

            tasks.start_soon(call)
            (await made.arrived()).progress(1)
            with anyio.fail_after(LIMIT_S):
                await heard.wait()
                await wire.cut()
                go.set()
        assert results[0].content[0].text == "here"
        assert len(made.peers["one"].sent) == 1
