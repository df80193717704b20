"""Nothing that a server started outlives its connection, in whatever order they end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import JSONRPCNotification

from hubbub_shared.platform import processes
from hubbub_shared.platform.processes import kill_marked
from hubbubd.config.servers.server import ServerConfig
from hubbubd.errors import UpstreamError
from hubbubd.upstream.stdio import process
from hubbubd.upstream.stdio.transport import ExitStatus, stdio_transport

from .families import (
    BOUND_S,
    FALLING,
    FAMILY,
    HUB,
    OFFSPRING,
    READING,
    STAYING,
    alive,
    family,
    gone,
    of_linux,
    parent_of,
    peer,
)


async def test_a_server_that_does_not_heed_its_stdin_gets_sigterm() -> None:
    async with stdio_transport(ServerConfig(name="peer", command="sleep", args=("600",))) as streams:
        pass
    assert await streams.wait_exit() == ExitStatus(signal=signal.SIGTERM)


@pytest.mark.parametrize("manners", ["polite", "deaf"])
async def test_leaving_ends_daemons_and_new_sessions_too(manners: str) -> None:
    async with stdio_transport(peer(READING, manners)) as streams:
        pids = await family(streams)
    assert not any(map(alive, pids))
    assert await streams.wait_exit() == ExitStatus(code=0)


async def test_a_server_that_ignores_sigterm_is_killed_with_its_family() -> None:
    async with stdio_transport(peer(STAYING, "deaf")) as streams:
        pids = await family(streams, OFFSPRING + 1)
    assert not any(map(alive, pids))
    assert await streams.wait_exit() == ExitStatus(signal=signal.SIGKILL)


async def test_a_server_that_keeps_writing_is_not_kept_alive_by_a_full_pipe() -> None:
    script = "import sys\nwhile True: print('x' * 1000)"
    async with stdio_transport(peer(script)) as streams:
        pass
    assert not alive(streams.pid)


async def test_what_a_fallen_server_leaves_behind_is_swept_at_once() -> None:
    async with stdio_transport(peer(FALLING, "deaf")) as streams:
        pids = await family(streams)
        await streams.write.aclose()
        with anyio.fail_after(BOUND_S):
            assert await streams.wait_exit() == ExitStatus(code=7)
        await gone(*pids)
        with pytest.raises(anyio.EndOfStream):
            await streams.read.receive()


async def test_a_killed_hub_takes_everything_with_it() -> None:
    hub = subprocess.Popen([sys.executable, "-c", HUB, STAYING], stdout=subprocess.PIPE, text=True)
    try:
        assert hub.stdout
        with anyio.fail_after(BOUND_S):
            pids = [int(pid) for pid in (await anyio.to_thread.run_sync(hub.stdout.readline)).split()]
        assert len(pids) == 6
        reaper = parent_of(pids[0])
        above = parent_of(reaper)
        assert parent_of(above) == hub.pid
        assert all(map(alive, pids))
    finally:
        hub.kill()
        with hub:
            hub.wait(BOUND_S)
    await gone(above, reaper, *pids)


async def test_a_killed_reaper_takes_its_server_along_and_the_rest_goes_with_the_connection() -> None:
    async with stdio_transport(peer(STAYING, "deaf")) as streams:
        pids = await family(streams, OFFSPRING + 1)
        os.kill(parent_of(streams.pid), signal.SIGKILL)
        with anyio.fail_after(BOUND_S):
            assert await streams.wait_exit() == ExitStatus()
        await gone(streams.pid)
    assert not any(map(alive, pids))


async def test_leaving_waits_until_what_a_killed_reaper_has_left_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends has no mark any more, so only the look that has killed it knows of it."""
    started, ended = list[str](), list[str]()

    def kill_slowly(mark: str) -> None:
        started.append(mark)
        is_first = len(started) == 1
        kill_marked(mark)
        if is_first:
            time.sleep(0.3)
        ended.append(mark)

    monkeypatch.setattr(processes, "kill_marked", kill_slowly)
    async with stdio_transport(peer(STAYING, "deaf")) as streams:
        os.kill(parent_of(streams.pid), signal.SIGKILL)
        with anyio.fail_after(BOUND_S):
            await streams.wait_exit()
    assert len(ended) == len(started)


async def test_a_reaper_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "EXIT_GRACE_S", 0.1)
    monkeypatch.setattr(process, "SWEEP_LIMIT_S", 0.1)
    async with stdio_transport(peer(STAYING, "deaf")) as streams:
        pids = await family(streams, OFFSPRING + 1)
        reaper = parent_of(streams.pid)
        os.kill(reaper, signal.SIGSTOP)
    await gone(reaper, *pids)


async def test_a_reaper_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "reaper.py"
    broken.write_text("raise SystemExit('no such kernel')")
    monkeypatch.setattr(processes, "REAPER", broken)
    with anyio.fail_after(BOUND_S), pytest.raises(UpstreamError, match="no such kernel") as caught:
        async with stdio_transport(peer(READING)):
            pass
    assert caught.value.fault.code == "START_FAILED"


async def test_signals_to_the_whole_service_leave_the_reaper_standing() -> None:
    async with stdio_transport(peer(READING, "deaf")) as streams:
        pids = await family(streams)
        reaper = parent_of(streams.pid)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(reaper, number)
        os.kill(streams.pid, signal.SIGTERM)
        with anyio.fail_after(BOUND_S):
            assert await streams.wait_exit() == ExitStatus(signal=signal.SIGTERM)
        await gone(*pids)


async def test_a_server_that_signals_its_group_reaches_only_itself() -> None:
    script = FAMILY + "sys.stdin.readline(); os.kill(0, signal.SIGKILL)"
    async with stdio_transport(peer(script)) as streams:
        pids = await family(streams)
        assert os.getsid(streams.pid) == streams.pid
        await streams.write.aclose()
        with anyio.fail_after(BOUND_S):
            assert await streams.wait_exit() == ExitStatus(signal=signal.SIGKILL)
        await gone(*pids)


@pytest.fixture
def in_the_background() -> Iterator[None]:
    """Signals as for what a shell starts in the background, and with one blocked."""
    ignored = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGQUIT, signal.SIGUSR2)}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    for number, handler in ignored.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("in_the_background")
async def test_the_server_starts_with_ordinary_signals_and_three_descriptors() -> None:
    async with stdio_transport(ServerConfig(name="peer", command="cat")) as streams:
        await streams.write.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="echo")))
        await streams.read.receive()  # so its libraries are loaded
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{streams.pid}/status").read_text().splitlines())
        # The two that the C library keeps for itself nobody can set: make's way to start a program has them ignored.
        ordinary = sum(1 << (number - 1) for number in signal.valid_signals())
        assert (int(status["SigIgn"], 16) | int(status["SigBlk"], 16)) & ordinary == 0
        assert {path.name for path in Path(f"/proc/{streams.pid}/fd").iterdir()} == {"0", "1", "2"}


@of_linux
async def test_orphans_of_a_living_server_are_inherited_by_its_reaper() -> None:
    async with stdio_transport(peer(READING)) as streams:
        pids = await family(streams)
        reaper = parent_of(streams.pid)
        # The daemon speaks a moment before the one that has forked it ends.
        with anyio.fail_after(BOUND_S):
            while [parent_of(pid) for pid in pids[1:]].count(reaper) != 1:
                await anyio.sleep(0.005)
