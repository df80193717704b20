"""Servers that do every odd thing at once beside twenty good ones, and what the good ones' callers notice of it.

    python -m tests.e2e.odd --seconds 60                                      (or `make odd SECONDS=60`)

The same time is measured without the odd ones, half of it before and half after. Exits with 1 when a call of a good
server is not answered, or the slowest hundredth of them takes longer than 1.5 times what it takes without the odd
ones; when a list or a watch is not whole, the hub takes too much memory, has a traceback in its log, does not end, or
does not start again on its store as it was.
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import grpc
from google.rpc import error_details_pb2 as details_pb2
from grpc_status import rpc_status

import hubbub_client
from hubbub.v1 import call_pb2

from ..ports import reserved
from .conftest import LIMIT_S, POLL_S, RunningHub, child, running, toml
from .crowd import bad, rss_kb
from .whole import troubles

ODD = str(Path(__file__).parents[1] / "peers" / "odd.py")
OVER_STDIO = ("tasks", "answers", "wrong", "questions", "flood", "stderr", "names", "intro", "escapes", "progress")
OVER_HTTP = ("later", "stream", "retry", "forgets", "headers")
GOOD = tuple(f"good-{number}" for number in range(20))
OF_THEM_HTTP = 6

CROWD_LIMIT_S = 4 * LIMIT_S
"""Bound of what all of them do, on a machine that does other things too."""

PACE_S = 0.25
"""Between two calls of one good server."""

ODD_PACE_S = 1.0
"""Between two calls of one odd server: what is measured is what odd servers do, not what more calls cost."""

SLOWER = 1.5
"""So much longer the slowest hundredth of the good calls may take beside the odd servers."""

GROWTH_KB = 700 * 1024
"""What the hub may take for all the odd servers together; each has budgets of its own.

Measured once, over 20 s on two cores that were busy otherwise: 609 MB. How much of it each server has is not measured.
"""

KEPT = {"shutdown_grace_s": 1, "watch_config": False}


@dataclass
class Report:
    """What was seen. Latencies in seconds, by phase."""

    latencies: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    grown_kb: int = 0

    def p99_s(self, *phases: str) -> float:
        """What all but the slowest hundredth of the calls took at most."""
        every = sorted(itertools.chain.from_iterable(self.latencies.get(phase, ()) for phase in phases))
        return every[int(len(every) * 0.99)] if every else float("inf")

    @property
    def ratio(self) -> float:
        """How much longer that is beside the odd servers."""
        return self.p99_s("odd") / self.p99_s("before", "after")

    def lines(self) -> Iterator[str]:
        """For people."""
        for phase, taken in self.latencies.items():
            p50_ms, p99_ms = sorted(taken)[len(taken) // 2] * 1000 if taken else 0.0, self.p99_s(phase) * 1000
            yield f"{phase}: {len(taken)} good calls, p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms"
        yield f"p99 beside the odd servers: {self.ratio:.2f} of that without"
        yield f"the hub grew by {self.grown_kb // 1024} MB"
        yield f"calls of the odd servers: {dict(self.outcomes.most_common())}"
        yield from (f"WRONG {what}" for what in self.wrong)


async def storm(directory: Path, seconds: float, say: Callable[[str], None]) -> Report:
    """Half of the time without the odd servers, all of it with them, half without; then the hub is started again."""
    report = Report()
    async with AsyncExitStack() as started:
        quiet = await started.enter_async_context(_http())
        odd = await started.enter_async_context(_http())
        good = {name: bad("good") for name in GOOD[OF_THEM_HTTP:]}
        good |= {name: {"url": f"{quiet}/{name}"} for name in GOOD[:OF_THEM_HTTP]}
        every = good | _odd_servers(odd)
        file, log = directory / "hub.toml", directory / "hub.log"

        def configure(servers: dict[str, Any]) -> None:
            file.write_text(toml({"hub": KEPT, "servers": servers}))

        configure(good)
        async with _hub(directory, report, "the first hub") as hub:
            await hub.connected(*GOOD)
            for phase, time_s in (("before", seconds / 2), ("odd", seconds), ("after", seconds / 2)):
                configure(every if phase == "odd" else good)
                await hub.client.admin.reload()
                say(f"{phase}: {time_s:.0f} s")
                await _phase(hub, report, phase, time_s)
            configure(every)
            await hub.client.admin.reload()
        say("the same store again")
        async with _hub(directory, report, "the next hub") as hub:
            await hub.connected(*GOOD)
            await _look(hub, report, "started again")
            for name in GOOD:
                await _call_good(hub, report, name, "again")
        if said := [line for line in log.read_text(errors="replace").splitlines() if "Traceback" in line]:
            report.wrong.append(f"log, {len(said)} times: {said[0][:800]} ... {said[0][-1500:]}")
    return report


def _odd_servers(url: str) -> dict[str, Any]:
    options = {"call_timeout_s": 3, "call_max_s": 5}
    found: dict[str, Any] = {
        name: {"command": sys.executable, "args": ["-I", "-S", ODD, name], **options} for name in OVER_STDIO
    }
    return found | {name: {"url": f"{url}/{name}", **options} for name in OVER_HTTP}


@asynccontextmanager
async def _http() -> AsyncIterator[str]:
    with reserved() as port:
        async with child([sys.executable, "-S", ODD, "http"], env=os.environ | {"PORT": str(port)}, stdout=None):
            with anyio.fail_after(LIMIT_S):
                while True:
                    try:
                        async with await anyio.connect_tcp("127.0.0.1", port):
                            break
                    except OSError:
                        await anyio.sleep(POLL_S)
            yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def _hub(directory: Path, report: Report, which: str) -> AsyncIterator[RunningHub]:
    """A hub that has said it is ready, and that must end as it should."""
    arguments = [
        "--config",
        str(directory / "hub.toml"),
        "--data-dir",
        str(directory / "data"),
        "--listen",
        "127.0.0.1:0",
    ]
    with (directory / "hub.log").open("ab") as said:
        async with running(arguments, stderr=said) as hub:
            try:
                yield hub
            except (hubbub_client.HubbubError, TimeoutError) as exc:
                report.wrong.append(f"{which} does not go on: {exc!r}")
            try:
                await hub.terminate()
            except (AssertionError, TimeoutError) as exc:
                report.wrong.append(f"{which} does not end: {exc!r}")
                hub.process.kill()
                await hub.process.wait()


async def _phase(hub: RunningHub, report: Report, phase: str, seconds: float) -> None:
    report.latencies[phase] = []
    before = rss_kb(hub.process.pid)
    async with anyio.create_task_group() as others:
        if phase == "odd":
            for name in (*OVER_STDIO, *OVER_HTTP):
                others.start_soon(_call_odd, hub, report, name)
            others.start_soon(_weigh, hub, report, before)
            await _all_called(report)  # they are there, and do what they do: what it takes to start them is over
        with anyio.move_on_after(seconds + CROWD_LIMIT_S) as bound:
            async with anyio.create_task_group() as callers:
                for number, name in enumerate(GOOD):
                    callers.start_soon(_caller, hub, report, phase, name, seconds, number * PACE_S / len(GOOD))
        if bound.cancelled_caught:
            missing = len(GOOD) * int(seconds / PACE_S) - len(report.latencies[phase])
            report.wrong.append(
                f"{phase}: {missing} good calls were not answered within {seconds + CROWD_LIMIT_S:.0f} s"
            )
        if phase == "odd":
            await _look(hub, report, "beside the odd servers")
        others.cancel_scope.cancel()


async def _all_called(report: Report) -> None:
    """Waits until a call of each odd server has ended: those who take long to start have ended none before."""
    with anyio.move_on_after(LIMIT_S):
        while {outcome.partition(" ")[0] for outcome in report.outcomes} != {*OVER_STDIO, *OVER_HTTP}:
            await anyio.sleep(POLL_S)


async def _caller(hub: RunningHub, report: Report, phase: str, name: str, seconds: float, offset: float) -> None:
    """Calls a good server again and again, at its own pace."""
    begin = time.monotonic() + offset
    await anyio.sleep(offset)
    for turn in range(int(seconds / PACE_S)):
        await anyio.sleep(max(0.0, begin + turn * PACE_S - time.monotonic()))
        await _call_good(hub, report, name, phase)


async def _call_good(hub: RunningHub, report: Report, name: str, phase: str) -> None:
    begin = time.monotonic()
    try:
        with anyio.fail_after(LIMIT_S):
            result = await hub.client.call_tool(name, "echo", {"text": "x"})
        answered = result.text == "x"
    except (hubbub_client.HubbubError, TimeoutError) as exc:
        answered = False
        report.wrong.append(f"{phase}: {name}: {exc!r}")
    if answered and phase in report.latencies:
        report.latencies[phase].append(time.monotonic() - begin)


async def _call_odd(hub: RunningHub, report: Report, name: str) -> None:
    """Calls an odd server again and again, some of the calls as tasks, some left by their caller."""
    access = json.loads((hub.data_dir / "client.json").read_bytes())
    metadata = (("authorization", f"Bearer {access['token']}"),)
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(access["address"], options=options) as channel:
        call = channel.unary_unary("/hubbub.v1.CallService/CallMethod")
        for turn in itertools.count():
            arguments = {"id": await _some_request(hub)} if name == "tasks" and turn % 5 == 4 else {}
            params = json.dumps({"name": "odd", "arguments": arguments}).encode()
            spec = call_pb2.CallSpec(server=name, method="tools/call", params=params, as_task=name == "tasks")
            raw = call_pb2.CallMethodRequest(spec=spec).SerializeToString()
            try:
                await call(raw, metadata=metadata, timeout=0.3 if turn % 4 == 3 else 8)
                report.outcomes[f"{name} OK"] += 1
            except grpc.aio.AioRpcError as exc:
                report.outcomes[f"{name} {_reason(exc)}"] += 1
                if exc.code() is grpc.StatusCode.INTERNAL:
                    report.wrong.append(f"a call of {name}: {exc.details()}")
            await anyio.sleep(ODD_PACE_S)


async def _some_request(hub: RunningHub) -> str:
    """The id of an open request of another server."""
    try:
        open_ = await hub.client.inbox.list(states=["open"], server="escapes", limit=1)
        return open_[0].id if open_ else "none"
    except hubbub_client.HubbubError:
        return "none"


def _reason(error: grpc.aio.AioRpcError) -> str:
    status = rpc_status.from_call(error)
    about = details_pb2.ErrorInfo()
    if status is not None and any(detail.Unpack(about) for detail in status.details):
        return about.reason
    return error.code().name


async def _weigh(hub: RunningHub, report: Report, before: int) -> None:
    while True:
        report.grown_kb = max(report.grown_kb, rss_kb(hub.process.pid) - before)
        await anyio.sleep(0.1)


async def _look(hub: RunningHub, report: Report, when: str) -> None:
    access = json.loads((hub.data_dir / "client.json").read_bytes())
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(access["address"], options=options) as channel:
        found = await troubles(channel, (("authorization", f"Bearer {access['token']}"),))
    report.wrong += [f"{when}: {what}" for what in sorted({*found})]


def judge(report: Report, *, slower: float | None) -> None:
    """Adds what is beyond the bounds to what is wrong; without `slower`, no time is looked at."""
    if report.grown_kb > GROWTH_KB:
        report.wrong.append(f"the hub grew by {report.grown_kb // 1024} MB")
    if slower is not None and report.ratio > slower:
        report.wrong.append(f"p99 of the good calls is {report.ratio:.2f} of what it is without the odd servers")


async def main(argv: Sequence[str]) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="odd", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="odd-") as directory:
        report = await storm(Path(directory), options.seconds, lambda what: print(what, flush=True))
    judge(report, slower=SLOWER)
    print(*report.lines(), sep="\n")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1:]))
