"""All servers are started from one process, and none of them depends on it, or on another server."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import JSONRPCNotification

from hubbub_shared.platform import processes
from hubbubd.errors import UpstreamError
from hubbubd.upstream.stdio import launcher, process
from hubbubd.upstream.stdio.transport import ExitStatus, StdioStreams, stdio_transport

from .families import BOUND_S, CAT, HUB, OFFSPRING, READING, STAYING, alive, family, gone, of_linux, parent_of, peer


def launcher_of(streams: StdioStreams) -> int:
    return parent_of(parent_of(streams.pid))


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def echoed(streams: StdioStreams) -> None:
    """Returns when a message has been there and back."""
    with anyio.fail_after(BOUND_S):
        await streams.write.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="echo")))
        assert isinstance(await streams.read.receive(), SessionMessage)


async def test_fifty_servers_that_start_at_once_have_one_launcher() -> None:
    running: list[StdioStreams] = []
    launchers: set[int] = set()
    async with AsyncExitStack() as servers, anyio.create_task_group() as tasks:

        async def start() -> None:
            running.append(await servers.enter_async_context(stdio_transport(CAT)))

        with anyio.fail_after(BOUND_S):
            async with anyio.create_task_group() as starting:
                for _ in range(50):
                    starting.start_soon(start)
        assert len({parent_of(streams.pid) for streams in running}) == 50
        launchers.update(map(launcher_of, running))
        assert [parent_of(launcher) for launcher in launchers] == [os.getpid()]
        for streams in running:
            tasks.start_soon(echoed, streams)
    assert not any(map(alive, [*launchers, *(streams.pid for streams in running)]))


async def test_the_launcher_goes_with_the_last_server_and_comes_again() -> None:
    async with stdio_transport(CAT) as first:
        old = launcher_of(first)
        async with stdio_transport(CAT):
            pass
        async with stdio_transport(CAT) as third:
            assert launcher_of(third) == old
    assert not Path(f"/proc/{old}").exists()
    async with stdio_transport(CAT) as fourth:
        assert launcher_of(fourth) != old


async def test_a_killed_launcher_costs_no_server_and_is_replaced_with_the_next_start() -> None:
    async with stdio_transport(CAT) as echoing:
        old = launcher_of(echoing)
        async with stdio_transport(peer(READING, "deaf")) as streams:
            pids = await family(streams)
            os.kill(old, signal.SIGKILL)
            await gone(old)
            await echoed(echoing)
            async with stdio_transport(CAT) as third:
                await echoed(third)
                new = launcher_of(third)
                assert new != old
        assert not any(map(alive, pids))
        await echoed(echoing)
    assert not Path(f"/proc/{old}").exists()
    assert not any(map(alive, [new, echoing.pid, third.pid]))


async def test_when_the_launcher_and_all_reapers_are_killed_the_servers_end_with_all_they_started() -> None:
    async with stdio_transport(peer(STAYING, "deaf")) as first, stdio_transport(peer(STAYING, "deaf")) as second:
        families = [await family(streams, OFFSPRING + 1) for streams in (first, second)]
        for pid in (launcher_of(first), parent_of(first.pid), parent_of(second.pid)):
            os.kill(pid, signal.SIGKILL)
        for streams in (first, second):
            with anyio.fail_after(BOUND_S):
                assert await streams.wait_exit() == ExitStatus()
            await gone(streams.pid)
        async with stdio_transport(CAT) as third:
            await echoed(third)
    assert not any(map(alive, [pid for pids in families for pid in pids]))


async def test_a_launcher_that_hangs_is_replaced_and_its_servers_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "EXIT_GRACE_S", 0.1)
    monkeypatch.setattr(process, "SWEEP_LIMIT_S", 0.1)
    async with stdio_transport(CAT) as first:
        old = launcher_of(first)
        os.kill(old, signal.SIGSTOP)
        with anyio.fail_after(BOUND_S):
            while state(old) != "T":
                await anyio.sleep(0.005)
        async with anyio.create_task_group() as tasks:
            started(1, tasks)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await gone(old)
        async with stdio_transport(CAT) as third:
            await echoed(third)
        await echoed(first)


async def test_a_launcher_that_hangs_to_the_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "END_LIMIT_S", 0.1)
    async with stdio_transport(CAT) as streams:
        old = launcher_of(streams)
        os.kill(old, signal.SIGSTOP)
    assert not Path(f"/proc/{old}").exists()


FEW_FORKS = """
import os, sys
sys.path.insert(0, %r)
from hubbub_shared.platform.{script} import main

forks = [os.fork] * %d

def fork():
    if not forks:
        raise OSError(%d, "too many")
    return forks.pop()()

os.fork = fork
main()
""".replace("{script}", processes.REAPER.stem)


@pytest.mark.parametrize("enough_for", [0, 1], ids=["reaper", "server"])
async def test_a_system_with_too_many_processes_is_an_error_that_may_pass(
    enough_for: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "few.py"
    script.write_text(FEW_FORKS % (os.fspath(processes.REAPER.parents[2]), enough_for, errno.EAGAIN))
    monkeypatch.setattr(processes, "REAPER", script)
    with anyio.fail_after(BOUND_S), pytest.raises(UpstreamError, match=os.strerror(errno.EAGAIN)) as caught:
        async with stdio_transport(CAT):
            pass
    assert (caught.value.fault.code, caught.value.fault.retryable) == ("START_FAILED", True)


REACHING = """
import json, os, sys

def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

own = [number for number in range(3, 1024) if os.path.exists(f"/proc/self/fd/{number}")]
reaper = parent(os.getpid())
reached = []
for pid in (reaper, parent(reaper)):
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            descriptor = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR)
        except OSError:
            continue
        reached.append(os.readlink(f"/proc/self/fd/{descriptor}"))
params = {"own": own, "reached": reached}
print(json.dumps({"jsonrpc": "2.0", "method": "found", "params": params}), flush=True)
sys.stdin.read()
"""


@of_linux
async def test_a_hostile_server_finds_no_pipe_of_another_server_and_no_way_to_the_hub() -> None:
    async with stdio_transport(CAT) as first, stdio_transport(peer(REACHING)) as hostile:
        with anyio.fail_after(BOUND_S):
            item = await hostile.read.receive()
        await echoed(first)
    assert isinstance(item, SessionMessage)
    found = json.loads(item.message.model_dump_json())["params"]
    assert found["own"] == []
    # The system opens no socket in this way. The pidfd is the server's own.
    assert set(found["reached"]) <= {"/dev/null", "/memfd:stderr (deleted)", "anon_inode:[pidfd]"}


async def test_two_hubs_leave_each_others_servers_alone() -> None:
    with ExitStack() as hubs:
        families: list[list[int]] = []
        for _ in range(2):
            hub = hubs.enter_context(
                subprocess.Popen([sys.executable, "-c", HUB, STAYING], stdout=subprocess.PIPE, text=True)
            )
            hubs.callback(hub.kill)
            assert hub.stdout
            with anyio.fail_after(BOUND_S):
                pids = [int(pid) for pid in (await anyio.to_thread.run_sync(hub.stdout.readline)).split()]
            families.append([hub.pid, parent_of(pids[0]), parent_of(parent_of(pids[0])), *pids])
        os.kill(families[0][0], signal.SIGKILL)
        await gone(*families[0])
        assert all(map(alive, families[1]))
        os.kill(families[1][0], signal.SIGKILL)
        await gone(*families[1])


HELD = """
import socket, sys
sys.path.insert(0, %r)
from hubbub_shared.platform import reaper
from hubbub_shared.platform.{script} import main

start = reaper.Reaper._start

def held(self, descriptors):
    with socket.socket(socket.AF_UNIX) as way:
        way.connect(%r)
        way.recv(1)
    return start(self, descriptors)

reaper.Reaper._start = held
main()
""".replace("{script}", processes.REAPER.stem)


class Held:
    """Starts of processes, each of which waits until it is let go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        path = directory / "held.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.fspath(path))
        self.listener.listen()
        self.listener.setblocking(False)
        script = directory / "held.py"
        script.write_text(HELD % (os.fspath(processes.REAPER.parents[2]), os.fspath(path)))
        monkeypatch.setattr(processes, "REAPER", script)
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


async def test_a_server_whose_start_hangs_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch, held: Held) -> None:
    monkeypatch.setattr(process, "START_LIMIT_S", 0.0)
    async with anyio.create_task_group() as tasks:
        running = started(2, tasks)
        await held.until(2)
        held.waiting.pop().close()
        with anyio.fail_after(BOUND_S):
            await running.acquire()
        assert len(held.waiting) == 1
        held.let_go()
        tasks.cancel_scope.cancel()


def kilobytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


@of_linux
@pytest.mark.parametrize("servers", [1, 50])
async def test_a_server_costs_less_than_a_megabyte_beside_its_own_process(servers: int) -> None:
    try:
        kilobytes(os.getpid(), "Pss")
    except (OSError, LookupError):
        pytest.skip("smaps_rollup cannot be read here, so there is no proportional set size to look at")
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(stdio_transport(CAT)) for _ in range(servers)]
        above = {pid for streams in running for pid in (parent_of(streams.pid), launcher_of(streams))}
        cost = sum(kilobytes(pid, "Pss") for pid in above)
    assert len(above) == servers + 1
    assert cost <= 6 * 1024 + servers * 700
