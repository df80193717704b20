"""A server that floods is read at its pace: reported once, slow and not lost."""

import sys
from pathlib import Path

import anyio
import pytest

from hubbubd.config import ServerConfig
from hubbubd.upstream.connector import McpConnector
from hubbubd.upstream.messages.rate_limit import BURST_S, ServerRateLimit

from ..runtime.virtual_time import VirtualTimeLoop
from .conftest import LIMIT_S, Connect, Pocket, Recorder, Scripted, event, says

PEER = str(Path(__file__).parents[1] / "peers" / "bad.py")


async def test_who_keeps_the_pace_never_waits() -> None:
    told: list[float] = []
    pace = ServerRateLimit(1000, 1e9, lambda rate, unit: told.append(rate))
    with anyio.fail_after(LIMIT_S), anyio.CancelScope() as scope:
        for _ in range(10_000):
            await pace.charge()
        scope.cancel()  # nothing above has waited, or it would have ended there
    assert told == []


def test_a_flood_is_told_once_until_it_is_over() -> None:
    told: list[float] = []

    async def flood_twice() -> None:
        pace = ServerRateLimit(100, 1e9, lambda rate, unit: told.append(rate))
        for _ in range(1050):
            await pace.charge()
        await anyio.sleep(BURST_S - 1)
        for _ in range(950):
            await pace.charge()
        assert told == [100]
        await anyio.sleep(BURST_S + 1)  # what it owed, and a whole burst
        for _ in range(1050):
            await pace.charge()
        assert told == [100, 100]

    anyio.run(flood_twice, backend_options={"loop_factory": VirtualTimeLoop})


def test_the_bytes_of_messages_are_paced_like_their_number() -> None:
    told: list[tuple[float, str]] = []

    async def flood() -> None:
        pace = ServerRateLimit(1000, 1e6, lambda rate, unit: told.append((rate, unit)))
        begun = anyio.current_time()
        for _ in range(20):
            await pace.charge(1_000_000)
        assert anyio.current_time() - begun == 20 - BURST_S
        assert told == [(1e6, "bytes")]

    anyio.run(flood, backend_options={"loop_factory": VirtualTimeLoop})


@pytest.mark.usefixtures("processes")
async def test_a_server_that_floods_still_gets_its_calls_answered() -> None:
    recorder = Recorder()
    config = ServerConfig(
        name="bad",
        command=sys.executable,
        args=("-I", "-S", PEER, "log_flood"),
        max_messages_per_s=200,
        connect_timeout_s=LIMIT_S,
    )
    with anyio.fail_after(3 * LIMIT_S):
        async with McpConnector(Pocket()).open(config, recorder, None, None) as link:
            while not recorder.throttled:
                await anyio.sleep(0.01)
            heard = len(recorder.notifications)
            began = anyio.current_time()
            result = await link.request("tools/call", {"name": "echo", "arguments": {}})
            took_s = anyio.current_time() - began
            assert result["content"]
            # What one rest allows may be read at once; over the time it took, the rate is a promise.
            assert len(recorder.notifications) - heard <= 200 * (took_s + 1)
    assert recorder.throttled == [(200, "messages")]


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_what_a_server_sends_unasked_is_charged_with_its_bytes(
    transport: str, scripted: Scripted, connect: Connect, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: list[int] = []

    async def charge(_: ServerRateLimit, size: int = 0) -> None:
        charged.append(size)

    monkeypatch.setattr(ServerRateLimit, "charge", charge)
    message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 100_000}}
    scripted.replaced = {"GET": says(200, event(message), "text/event-stream")}
    stdio = {"command": sys.executable, "args": ("-I", "-S", PEER, "log_flood")}
    async with connect(**stdio if transport == "stdio" else {"url": scripted.url}):
        await recorder.until(lambda: recorder.notifications)
    assert charged
    assert min(charged) >= (100_000 if transport == "http" else 50)
