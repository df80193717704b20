"""The hub under trial: a process of its own, what it said, what it has taken, and whether it still serves."""

import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import grpc
from google.rpc import error_details_pb2 as details_pb2
from grpc_status import rpc_status
from tests.e2e.conftest import LIMIT_S, POLL_S, RunningHub, child, running, toml
from tests.e2e.crowd import fds, rss_kb
from tests.ports import reserved

ENOUGH = 20
"""So many findings end a run."""

GROWTH_KB = 48 * 1024
"""More than a run may add to the hub's memory after its first fifth; what is kept is bounded by settings."""

SPARE = 12
"""Tasks of the loop and open files that may be there after a run and were not before, as connections of this one."""

SHOWN = 2000
KEPT = {"call_history_count": 300, "request_history_count": 300, "task_history_count": 100, "shutdown_grace_s": 1}
KEPT["trust_local"] = False  # no command that chance makes up is started


PEER = Path(__file__).with_name("hostile_peer.py")


def peer(revision: str, **options: Any) -> dict[str, Any]:
    """The configuration of the hostile server over stdio."""
    return {"command": sys.executable, "args": ["-S", str(PEER), "stdio", revision], "protocol": revision, **options}


@asynccontextmanager
async def peer_over_http(arguments: Sequence[str]) -> AsyncIterator[str]:
    """Starts a server that takes its port from the environment; where it is, once it listens."""
    command = [sys.executable, "-S", *arguments]
    with reserved() as port:
        async with child(command, env=os.environ | {"PORT": str(port)}, stdout=None):
            with anyio.fail_after(LIMIT_S):
                while True:
                    try:
                        async with await anyio.connect_tcp("127.0.0.1", port):
                            break
                    except OSError:
                        await anyio.sleep(POLL_S)
            yield f"http://127.0.0.1:{port}"


class Finding(Exception):
    """Something that must not be, with the input that shows it."""


@dataclass
class Tally:
    """What came of the inputs of one area."""

    area: str
    total: int
    outcomes: Counter[str] = field(default_factory=Counter[str])
    findings: list[str] = field(default_factory=list[str])
    say: Callable[[str], None] = lambda _: None
    done: int = 0

    def found(self, what: str) -> None:
        self.findings.append(what[:SHOWN])
        self.say(f"{self.area}: FOUND {what[:SHOWN]}")

    def summary(self) -> str:
        common = ", ".join(f"{name} {count}" for name, count in self.outcomes.most_common(12))
        return f"{self.area}: {self.done} inputs, {len(self.findings)} findings; {common}"


async def left_in_time(begun_at: float, limit_s: float) -> str:
    """What a stream came to that was cancelled: its deadline, when the hub's end of it was first to see it.

    Raises Finding for one that was cancelled long before.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()
    if anyio.current_time() - begun_at < limit_s / 2:
        raise Finding("a stream was cancelled, and not by its caller")
    return "left by its caller"


async def drive(
    tally: Tally, one: Callable[[int], Awaitable[str]], *, width: int, halfway: Callable[[], Awaitable[None]] | None
) -> None:
    """Runs all inputs, `width` at once. An input that takes longer than LIMIT_S is a finding."""
    numbers = iter(range(tally.total))

    async def worker() -> None:
        for number in numbers:
            if len(tally.findings) >= ENOUGH:
                return
            try:
                with anyio.fail_after(LIMIT_S):
                    tally.outcomes[await one(number)] += 1
            except Finding as exc:
                tally.found(f"input {number}: {exc}")
            except TimeoutError:
                tally.found(f"input {number}: no end within {LIMIT_S} s")
            except anyio.get_cancelled_exc_class():
                # Of gRPC, for an RPC that somebody else has cancelled: else this worker would end without a word.
                await anyio.lowlevel.checkpoint_if_cancelled()
                tally.found(f"input {number}: cancelled, and not by its caller")
            tally.done += 1
            if tally.done == tally.total // 5 and halfway is not None:
                await halfway()
            if tally.done % 2000 == 0:
                tally.say(tally.summary())

    async with anyio.create_task_group() as workers:
        for _ in range(width):
            workers.start_soon(worker)
    if tally.done < tally.total and len(tally.findings) < ENOUGH:
        tally.found(f"only {tally.done} of {tally.total} inputs were tried")


@dataclass
class Subject:
    """A hub that is tried, and what was measured of it at rest."""

    hub: RunningHub
    log: Path
    channel: grpc.aio.Channel
    metadata: tuple[tuple[str, str], ...]
    tasks: int = 0
    files: int = 0
    memory_kb: int = 0

    async def note_rest(self) -> None:
        """What is there before anything was tried."""
        self.tasks, self.files = (await self.hub.client.admin.status()).loop_tasks, fds(self.hub.process.pid)

    async def note_memory(self) -> None:
        """Memory once all of the hub has been in use."""
        self.memory_kb = rss_kb(self.hub.process.pid)

    async def judge(self, tally: Tally) -> None:
        """Looks for what a run has left behind."""
        try:
            with anyio.fail_after(LIMIT_S):
                while (left := await self._left()) is not None:
                    await anyio.sleep(0.2)
        except TimeoutError:
            tally.found(f"left behind: {left}")
        grown = rss_kb(self.hub.process.pid) - self.memory_kb
        tally.say(f"{tally.area}: memory {self.memory_kb} kB, {grown:+} kB since the first fifth")
        if grown > GROWTH_KB:
            tally.found(f"memory grew by {grown} kB")
        for line in suspicious(self.log):
            tally.found(f"log: {line}")

    async def _left(self) -> str | None:
        tasks, files = (await self.hub.client.admin.status()).loop_tasks, fds(self.hub.process.pid)
        if tasks > self.tasks + SPARE or files > self.files + SPARE:
            client = self.hub.client
            open_calls = [call.id for call in await client.calls.list() if not call.ended]
            open_tasks = [
                (task.id, task.status)
                for task in await client.tasks.list()
                if task.status in ("working", "input_required")
            ]
            asked = [request.id for request in await client.inbox.list(states=["open"])]
            unfinished = f"open calls {open_calls[:5]}, tasks {open_tasks[:5]}, requests {asked[:5]}"
            return f"{tasks} tasks ({self.tasks} before), {files} open files ({self.files} before), {unfinished}"
        return None


def suspicious(log: Path) -> Iterator[str]:
    """Lines of a hub's log that speak of something that nobody foresaw."""
    for line in log.read_text(errors="replace").splitlines():
        try:
            level = json.loads(line).get("level")
        except (ValueError, AttributeError):
            level = "error"  # a traceback, or what a library prints
        if level in ("error", "critical") or "Traceback" in line:
            yield line


@asynccontextmanager
async def subject(directory: Path, servers: Mapping[str, Any], hub: Mapping[str, Any]) -> AsyncIterator[Subject]:
    """A hub with these servers and settings."""
    directory.mkdir(parents=True, exist_ok=True)
    config, log = directory / "hub.toml", directory / "hub.log"
    config.write_text(toml({"hub": {**KEPT, **hub}, "servers": servers}))
    arguments = ["--config", str(config), "--data-dir", str(directory / "data"), "--listen", "127.0.0.1:0"]
    with log.open("wb") as said:
        async with running(arguments, stderr=said) as started:
            access = json.loads((started.data_dir / "client.json").read_bytes())
            options = [("grpc.max_receive_message_length", -1), ("grpc.max_metadata_size", 64 * 1024)]
            async with grpc.aio.insecure_channel(access["address"], options=options) as channel:
                metadata = (("authorization", f"Bearer {access['token']}"),)
                yield Subject(started, log, channel, metadata)


def outcome(error: grpc.aio.AioRpcError, shown: str) -> str:
    """The code and the reason of a status. Raises Finding for one that is not the hub's, or not classified."""
    status = rpc_status.from_call(error)
    about = details_pb2.ErrorInfo()
    known = any(detail.Unpack(about) for detail in status.details) if status is not None else False
    if not known or about.domain != "hubbub" or about.reason == "INTERNAL" or error.code() is grpc.StatusCode.INTERNAL:
        raise Finding(f"{error.code().name} {error.details()!r} for {shown}")
    return f"{error.code().name} {about.reason}"
