"""Nothing that a server started outlives its connection, whoever dies first."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup
from mcp.shared.message import SessionMessage

from hubbubd.config.server import ServerConfig
from hubbubd.errors import UpstreamError
from hubbubd.upstream import process
from hubbubd.upstream.stdio import ExitStatus, StdioStreams, stdio_transport

BOUND_S = 60

FAMILY = """
import os, signal, sys, time

def announce(role):
    os.write(1, b'{"jsonrpc": "2.0", "method": "born", "params": {"role": "%s", "pid": %d}}\\n' % (role, os.getpid()))

def stay(role, deaf):
    if deaf:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    announce(role)
    while True:
        time.sleep(600)

deaf = "deaf" in sys.argv
if os.fork() == 0:
    stay(b"child", deaf)
if os.fork() == 0:
    os.setsid()
    stay(b"session", deaf)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        if os.fork() == 0:
            stay(b"daemon's child", deaf)
        stay(b"daemon", deaf)
    os._exit(0)
"""
STAYING = FAMILY + 'stay(b"server", deaf)'
READING = FAMILY + "sys.stdin.read()"
FALLING = FAMILY + "sys.stdin.readline(); os._exit(7)"
OFFSPRING = 4


def peer(script: str, *args: str) -> ServerConfig:
    return ServerConfig(name="peer", command=sys.executable, args=("-I", "-S", "-c", script, *args))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def gone(*pids: int) -> None:
    with anyio.fail_after(BOUND_S):
        while any(map(alive, pids)):
            await anyio.sleep(0.005)


async def family(streams: StdioStreams, count: int = OFFSPRING) -> list[int]:
    """The server's process and all it started, alive."""
    pids = [streams.pid]
    with anyio.fail_after(BOUND_S):
        for _ in range(count):
            item = await streams.read.receive()
            assert isinstance(item, SessionMessage)
            pids.append(item.message.model_dump()["params"]["pid"])
    assert all(map(alive, pids))
    return pids


async def test_a_server_that_obeys_ends_by_itself_when_its_stdin_closes() -> None:
    async with stdio_transport(peer("import sys; sys.stdin.read(); sys.exit(5)")) as streams:
        pass
    assert await streams.wait_exit() == ExitStatus(code=5)


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


async def test_leaving_by_cancellation_sweeps_as_well() -> None:
    with anyio.CancelScope() as scope:
        async with stdio_transport(peer(READING)) as streams:
            pids = await family(streams)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert not any(map(alive, pids))


async def test_a_killed_hub_takes_everything_with_it() -> None:
    script = """
import sys, anyio
from hubbubd.config.server import ServerConfig
from hubbubd.upstream.stdio import stdio_transport

async def main():
    config = ServerConfig(name="peer", command=sys.executable, args=("-I", "-S", "-c", sys.argv[1], "deaf"))
    async with stdio_transport(config) as streams:
        pids = [streams.pid]
        for _ in range(5):
            pids.append((await streams.read.receive()).message.params["pid"])
        print(*pids, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""
    hub = subprocess.Popen([sys.executable, "-c", script, STAYING], stdout=subprocess.PIPE, text=True)
    try:
        assert hub.stdout
        with anyio.fail_after(BOUND_S):
            pids = [int(pid) for pid in (await anyio.to_thread.run_sync(hub.stdout.readline)).split()]
        assert len(pids) == 6
        reaper = parent_of(pids[0])
        assert parent_of(reaper) == hub.pid
        assert all(map(alive, pids))
    finally:
        hub.kill()
        with hub:
            hub.wait(BOUND_S)
    await gone(reaper, *pids)


async def test_a_killed_reaper_takes_its_server_along_and_the_rest_goes_with_the_connection() -> None:
    async with stdio_transport(peer(STAYING, "deaf")) as streams:
        pids = await family(streams, OFFSPRING + 1)
        os.kill(parent_of(streams.pid), signal.SIGKILL)
        with anyio.fail_after(BOUND_S):
            assert await streams.wait_exit() == ExitStatus()
        await gone(streams.pid)
    await gone(*pids)  # what is killed has no environment any more, and is there for a moment


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
    monkeypatch.setattr(process, "REAPER", broken)
    with anyio.fail_after(BOUND_S), pytest.raises(UpstreamError, match="no such kernel") as caught:
        async with stdio_transport(peer(READING)):
            pass
    assert caught.value.fault.code == "START_FAILED"


HELD = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as way:
    way.connect(%r)
    way.recv(1)
os.execv(sys.executable, [sys.executable, "-I", "-S", "-X", "utf8", %r, *sys.argv[1:]])
"""


class Held:
    """Starts of processes, each of which waits until it is let go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        path = directory / "held.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.fspath(path))
        self.listener.listen()
        self.listener.setblocking(False)
        script = directory / "held.py"
        script.write_text(HELD % (os.fspath(path), os.fspath(process.REAPER)))
        monkeypatch.setattr(process, "REAPER", script)
        self.waiting: list[socket.socket] = []

    def close(self) -> None:
        for each in (self.listener, *self.waiting):
            each.close()

    async def until(self, count: int) -> None:
        """Returns when so many wait at least."""
        with anyio.fail_after(BOUND_S):
            while len(self.waiting) < count:
                await anyio.wait_readable(self.listener)
                self.take()

    def take(self) -> None:
        """Takes in all that have come."""
        with suppress(BlockingIOError):
            while True:
                self.waiting.append(self.listener.accept()[0])

    def let_go(self) -> None:
        """Lets the one that has waited longest go on."""
        self.waiting.pop(0).close()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Held]:
    """Every start of a process waits until the test lets it go on."""
    starts = Held(monkeypatch, tmp_path)
    yield starts
    starts.close()


def started(count: int, tasks: TaskGroup) -> anyio.Semaphore:
    """Starts so many servers at once; each that runs releases what is returned."""
    running = anyio.Semaphore(0)

    async def start() -> None:
        async with stdio_transport(peer(READING)):
            running.release()
            await anyio.sleep_forever()

    for _ in range(count):
        tasks.start_soon(start)
    return running


async def test_servers_are_started_two_at_a_time(monkeypatch: pytest.MonkeyPatch, held: Held) -> None:
    monkeypatch.setattr(process, "START_LIMIT_S", BOUND_S)
    async with anyio.create_task_group() as tasks:
        running = started(4, tasks)
        for left in (4, 3, 2, 1):
            await held.until(min(left, 2))
            await anyio.run_process([sys.executable, "-I", "-S", "-c", ""])  # as long as another start would take
            held.take()
            assert len(held.waiting) == min(left, 2)
            held.let_go()
            with anyio.fail_after(BOUND_S):
                await running.acquire()
        tasks.cancel_scope.cancel()


async def test_servers_that_are_slow_to_start_keep_others_only_for_a_while(
    monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    monkeypatch.setattr(process, "START_LIMIT_S", 0.0)
    async with anyio.create_task_group() as tasks:
        running = started(4, tasks)
        await held.until(4)
        for _ in range(4):
            held.let_go()
            with anyio.fail_after(BOUND_S):
                await running.acquire()
        tasks.cancel_scope.cancel()


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


async def test_the_server_starts_with_ordinary_signals_and_three_descriptors() -> None:
    async with stdio_transport(ServerConfig(name="peer", command="cat")) as streams:
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{streams.pid}/status").read_text().splitlines())
        # The two that the C library keeps for itself nobody can set: make's way to start a program has them ignored.
        ordinary = sum(1 << (number - 1) for number in signal.valid_signals())
        assert (int(status["SigIgn"], 16) | int(status["SigBlk"], 16)) & ordinary == 0
        assert {path.name for path in Path(f"/proc/{streams.pid}/fd").iterdir()} == {"0", "1", "2"}


async def test_orphans_of_a_living_server_are_inherited_by_its_reaper() -> None:
    async with stdio_transport(peer(READING)) as streams:
        pids = await family(streams)
        reaper = parent_of(streams.pid)
        # The daemon speaks a moment before the one that has forked it ends.
        with anyio.fail_after(BOUND_S):
            while [parent_of(pid) for pid in pids[1:]].count(reaper) != 1:
                await anyio.sleep(0.005)


def kilobytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


@pytest.mark.parametrize("servers", [1, 50])
async def test_a_reaper_costs_at_most_six_megabytes(servers: int) -> None:
    try:
        kilobytes(os.getpid(), "Pss")
    except (OSError, LookupError):
        pytest.skip("smaps_rollup cannot be read here, so there is no proportional set size to look at")
    ready = anyio.Semaphore(0)
    enough = anyio.Event()
    reapers: list[int] = []

    async def serve() -> None:
        async with stdio_transport(ServerConfig(name="peer", command="cat")) as streams:
            reapers.append(parent_of(streams.pid))
            ready.release()
            await enough.wait()

    async with anyio.create_task_group() as tasks:
        for _ in range(servers):
            tasks.start_soon(serve)
        with anyio.fail_after(BOUND_S):
            for _ in range(servers):
                await ready.acquire()
        costs = [kilobytes(reaper, "Pss") for reaper in reapers]
        enough.set()
    assert max(costs) <= 6 * 1024
