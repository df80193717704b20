"""What the launcher and the servers have of the hub, and what a hub does that is short of descriptors."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage

from hubbub_shared.platform import processes
from hubbubd.errors import Fault, UpstreamError
from hubbubd.upstream.stdio import launcher
from hubbubd.upstream.stdio.process import ServerProcess
from hubbubd.upstream.stdio.transport import stdio_transport

from .families import BOUND_S, CAT, HUB, STAYING, alive, parent_of, peer


async def test_a_launcher_that_takes_no_more_starts_is_an_error_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    idle = tmp_path / "idle.py"
    idle.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(processes, "REAPER", idle)
    monkeypatch.setattr(launcher, "END_LIMIT_S", 0.1)
    filled = launcher.Launcher()
    starts = 0
    with Path(os.devnull).open() as null, suppress(BlockingIOError):
        while starts < 10_000:
            await filled.start([null.fileno()])
            starts += 1
    for _ in range(starts):
        await filled.note_server_end()
    assert 0 < starts < 10_000


async def test_launcher_and_reaper_have_nothing_of_the_hubs_terminal_and_environment() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HUB, STAYING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TOKEN": "hub's own"},
        text=True,
    ) as hub:
        try:
            assert hub.stdout
            with anyio.fail_after(BOUND_S):
                server = int((await anyio.to_thread.run_sync(hub.stdout.readline)).split()[0])
            reaper = parent_of(server)
            above = [reaper, parent_of(reaper)]
            assert "TOKEN" not in "".join(Path(f"/proc/{pid}/environ").read_text() for pid in [*above, server])
            assert {Path(f"/proc/{pid}/fd/0").readlink() for pid in above} == {Path(os.devnull)}
            assert {os.getsid(pid) for pid in [*above, server]} == {above[1], server}
        finally:
            hub.kill()


def umask(pid: int) -> str:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Umask:"))
    return line


async def test_a_server_has_the_hubs_umask_also_when_a_socket_is_bound_while_the_launcher_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = subprocess.Popen

    def meanwhile(*args: Any, **options: Any) -> Any:
        before = os.umask(0o177)
        try:
            return start(*args, **options)
        finally:
            os.umask(before)

    monkeypatch.setattr(subprocess, "Popen", meanwhile)
    async with stdio_transport(CAT) as streams:
        assert umask(streams.pid) == umask(os.getpid())


def descriptors() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/fd").iterdir()}


@contextmanager
def descriptors_left(count: int) -> Generator[None]:
    """Lets this process open so many more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(descriptors())
    with ExitStack() as gaps:
        while (descriptor := os.open(os.devnull, os.O_RDONLY)) < highest:
            gaps.callback(os.close, descriptor)
        os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptor + count, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_start_for_which_there_are_too_few_descriptors_keeps_none() -> None:
    before = descriptors()
    faults: list[Fault] = []
    process: ServerProcess | None = None
    with anyio.fail_after(BOUND_S):
        while process is None:
            try:
                with descriptors_left(len(faults)):
                    process = await ServerProcess.start(CAT)
            except UpstreamError as exc:
                faults.append(exc.fault)
                assert descriptors() == before
    await process.stop()
    process.release()
    assert descriptors() == before
    assert {(fault.code, fault.retryable) for fault in faults} == {("START_FAILED", True)}
    assert len(faults) > 10


MANY = """
import json, os, sys, time

pids = []
for _ in range(40):
    pids.append(os.fork())
    if not pids[-1]:
        os.setsid()
        time.sleep(600)
        os._exit(0)
print(json.dumps({"jsonrpc": "2.0", "method": "born", "params": {"pids": pids}}), flush=True)
sys.stdin.read()
"""


async def test_a_killed_reaper_leaves_nothing_when_the_hub_has_hardly_a_descriptor_left() -> None:
    async with AsyncExitStack() as ending:
        streams = await ending.enter_async_context(stdio_transport(peer(MANY)))
        with anyio.fail_after(BOUND_S):
            item = await streams.read.receive()
        assert isinstance(item, SessionMessage)
        pids = item.message.model_dump()["params"]["pids"]
        with descriptors_left(4):
            os.kill(parent_of(streams.pid), signal.SIGKILL)
            await ending.aclose()
    assert not any(map(alive, pids))
