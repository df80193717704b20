"""What hosts write to the standard input of `hubbub mcp`: lines of any kind, more than they read, and half of one."""

import json
import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
from anyio.abc import Process, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.e2e.conftest import BIN, child
from tests.e2e.crowd import rss_kb

from . import talks
from .chance import Chance
from .host_messages import HANDSHAKE, INTERNAL, as_object, enveloped, handshake, in_session
from .subject import Finding, Tally, drive, peer, subject

PATIENCE_S = 45.0
LONGEST = 1 << 24
MEMORY_KB = 300 * 1024
"""More than a bridge may take; of a host that does not read it keeps some MiB."""

DEEPEST = 700
"""Brackets of a line that both the bridge and the hub can still read; beyond that there is no id to answer to."""

ENDPOINTS = (("--profile", "default"), ("--server", "toy"), ("--server", "asker"), ("--server", "none"))
UNANSWERED = ("subscriptions/listen",)
"""Methods whose requests last."""


async def bridge_lines(tally: Tally, seed: int, directory: Path) -> None:
    """Tries whatever a host may write, on a few bridges, which end now and then."""
    quick = {"call_timeout_s": 1, "answer_timeout_s": 2, "receiver_task_ttl_s": 5, "max_in_flight": 8}
    servers = {"toy": peer("2026-07-28", **quick), "asker": peer("2025-11-25", **quick), talks.SERVER: talks.steady()}
    async with subject(directory, servers, {}) as tried:
        await tried.hub.connected(*servers)
        await tried.note_rest()
        log = directory / "bridges.log"
        async with _bridges(tried.hub.data_dir, log) as start:
            trial = _Trial(start, seed)
            await drive(tally, trial.one, width=4, halfway=tried.note_memory)
            await trial.end(tally)
        talks.judge(tally)
        if b"Traceback" in (said := log.read_bytes()):
            tally.found(f"stderr: {said[-2000:].decode(errors='replace')}")
        await tried.judge(tally)


@asynccontextmanager
async def _bridges(data_dir: Path, log: Path) -> AsyncIterator[Any]:
    """`await start(*words)` starts a bridge; none is left in the end."""
    with log.open("wb") as said:
        async with AsyncExitStack() as bridges, anyio.create_task_group() as reading:

            async def start(*words: str) -> "_Bridge":
                command = [str(BIN / "hubbub"), "--data-dir", str(data_dir), "mcp", *words]
                started = child(command, stdin=PIPE, stdout=PIPE, stderr=said)
                return _Bridge(await bridges.enter_async_context(started), reading)

            yield start
            reading.cancel_scope.cancel()


class _Trial:
    def __init__(self, start: Any, seed: int) -> None:
        self._start = start
        self._seed = seed
        self._idle: list[_Bridge] = []
        self._talking: list[_Bridge] = []

    async def one(self, number: int) -> str:
        """A few lines; the bridge must answer what comes after them. It ends after some."""
        chance = Chance(self._seed, "bridge_lines", number)
        if chance.one_in(talks.ONE_IN):
            return await self._talk(talks.Talk(chance, number))
        fresh = not self._idle
        bridge = await self._start(*chance.of(ENDPOINTS)) if fresh else self._idle.pop()
        kind = "lines"
        try:
            lines = _lines(chance)
            if chance.one_in(40):
                kind = "more than is read"
                await bridge.say_unread(lines * chance.of((1, 50, 400)))
            else:
                await bridge.say(lines)
            await bridge.marked(f"mark-{number}")
            if chance.one_in(40):
                return f"{kind}, {await bridge.end(chance)}"
        except TimeoutError:
            raise Finding(f"no answer within {PATIENCE_S} s, after {bridge.shown}") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise Finding(f"the bridge has ended by itself, after {bridge.shown}") from None
        self._idle.append(bridge)
        return kind

    async def _talk(self, talk: talks.Talk) -> str:
        """A call whose question is answered, with nonsense around both. Raises Finding unless the answer arrives."""
        if self._talking:
            bridge = self._talking.pop()
        else:
            bridge = await self._start("--server", talks.SERVER)
            await bridge.say(talk.handshake())
        try:
            await bridge.say(_of_one_line(talk.noise()))
            await bridge.talk(talk)
        except TimeoutError:
            raise Finding(f"no end of a talk within {PATIENCE_S} s, after {bridge.shown}") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise Finding(f"the bridge has ended within a talk, after {bridge.shown}") from None
        self._talking.append(bridge)
        return talks.ANSWERED

    async def end(self, tally: Tally) -> None:
        """Leaves the bridges that are still there: what the hub keeps for each is not what a run leaves behind."""
        for bridge in (*self._idle, *self._talking):
            try:
                await bridge.leave("left")
            except Finding as exc:
                tally.found(f"after all inputs: {exc}")


class _Bridge:
    """A bridge, and what was written to it."""

    def __init__(self, process: Process, tasks: TaskGroup) -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        self._process = process
        self._stdin = process.stdin
        self._lines = BufferedByteReceiveStream(process.stdout)
        self._latest: list[bytes] = []
        self._owed: dict[str, bytes] = {}
        """Requests without a response, by id."""
        self._finding: Finding | None = None
        self._told: deque[dict[str, Any]] | None = None
        """What the bridge says and nobody has looked at, while somebody does."""
        self._news = anyio.Event()
        self._reads = anyio.Event()
        self._reads.set()
        tasks.start_soon(self._read)

    @property
    def shown(self) -> str:
        return f"{[line[:600] for line in self._latest]}"

    async def say(self, lines: list[bytes]) -> None:
        """Writes lines, as fast as they are taken."""
        self._latest = lines[-8:]
        for line in lines:
            if (id_ := _asked(line)) is not None:
                self._owed[id_] = line
            elif (id_ := _cancelled(line)) is not None:  # before its response on a busy machine; then none is owed
                self._owed.pop(id_, None)
        with anyio.fail_after(PATIENCE_S):
            await self._stdin.send(b"".join(line + b"\n" for line in lines))

    async def say_unread(self, lines: list[bytes]) -> None:
        """Does that, and reads nothing of what comes back until all is written, or can be no more."""
        self._reads = anyio.Event()
        try:
            async with anyio.create_task_group() as writing:
                writing.start_soon(self.say, lines)
                await anyio.sleep(0.2)
                self._judge_memory()
                self._reads.set()
        finally:
            self._reads.set()

    async def marked(self, id_: str) -> None:
        """Returns once a request has its response."""
        await self.say([json.dumps({"jsonrpc": "2.0", "id": id_, "method": "ping"}).encode()])
        await self._answered({json.dumps(id_)})

    async def talk(self, talk: talks.Talk) -> None:
        """Answers what is asked until the talk is over. Raises TimeoutError, and Finding for a lost answer."""
        told = self._told = deque[dict[str, Any]]()
        await self.say([talk.call()])
        with anyio.fail_after(PATIENCE_S):
            while not talk.over and self._finding is None:
                self._news = anyio.Event()
                while told:
                    if (answer := talk.hear(told.popleft())) is not None:
                        await self.say([*_of_one_line(talk.noise()), answer, *_of_one_line(talk.noise())])
                if not talk.over:
                    await self._news.wait()
        self._told = None
        if self._finding is not None:
            raise self._finding

    async def end(self, chance: Chance) -> str:
        """Ends the bridge in one of several ways, which it must bear."""
        self._judge_memory()
        if chance.one_in(2):
            try:
                await self._answered(None)
            except TimeoutError:
                raise Finding(f"never answered: {[line[:600] for line in self._owed.values()]}") from None
        return await self.leave(chance.of(("left", "left within a line", "ended by a signal", "left without reading")))

    async def leave(self, how: str) -> str:
        """Ends the bridge so. Raises Finding if it has another exit status than 0, or does not end."""
        if how == "left within a line":
            await self._stdin.send(b'{"jsonrpc": "2.0", "id": "half')
        if how == "ended by a signal":
            self._process.terminate()
        if how == "left without reading":
            self._reads = anyio.Event()
            await self._stdin.send(b'{"jsonrpc": "2.0", "id": 1, "method": "x"}\n')
        await self._stdin.aclose()
        try:
            with anyio.fail_after(PATIENCE_S):
                status = await self._process.wait()
        except TimeoutError:
            raise Finding(f"no end of a bridge that was {how}, after {self.shown}") from None
        self._reads.set()
        if status:
            raise Finding(f"exit status {status} of a bridge that was {how}, after {self.shown}")
        return how

    def _judge_memory(self) -> None:
        if (taken := rss_kb(self._process.pid)) > MEMORY_KB:
            raise Finding(f"the bridge takes {taken} kB, after {self.shown}")

    async def _answered(self, ids: set[str] | None) -> None:
        """Waits for responses to these, or to all. Raises TimeoutError, and the Finding of what came."""
        with anyio.fail_after(PATIENCE_S):
            while self._finding is None and (self._owed.keys() & ids if ids is not None else self._owed):
                self._news = anyio.Event()
                await self._news.wait()
        if self._finding is not None:
            raise self._finding

    async def _read(self) -> None:
        """Takes what the bridge says, whenever it is read."""
        try:
            while True:
                await self._reads.wait()
                self._judged(await self._lines.receive_until(b"\n", LONGEST))
                self._news.set()
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass

    def _judged(self, line: bytes) -> None:
        try:
            told = as_object(json.loads(line, parse_constant=_refused))
        except ValueError:
            told = {}
        if told.get("jsonrpc") != "2.0" or as_object(told.get("error")).get("code") == INTERNAL:
            self._finding = Finding(f"{line[:300]!r} after {self.shown}")
        if self._told is not None:
            self._told.append(told)
        if "method" not in told:
            self._owed.pop(json.dumps(told.get("id")), None)


def _of_one_line(said: list[bytes]) -> list[bytes]:
    return [line for each in said for line in each.split(b"\n")]


def _lines(chance: Chance) -> list[bytes]:
    said: list[bytes] = []
    if chance.one_in(6):
        said.append(json.dumps(handshake(chance, chance.of(HANDSHAKE))).encode())
    for _ in range(1 + chance.upto(3)):
        message = enveloped(chance)[0] if chance.one_in(3) else in_session(chance)
        said += chance.document(message).split(b"\n")
    if chance.one_in(50):
        said.append(chance.noise(70_000).replace(b"\n", b" "))
    return said


def _asked(line: bytes) -> str | None:
    """The id of a request to which there must be a response."""
    if line.count(b"[") + line.count(b"{") > DEEPEST:
        return None
    try:
        message = as_object(json.loads(line.decode(), parse_constant=_refused))
    except ValueError:
        return None
    id_ = message.get("id")
    if isinstance(id_, bool) or not isinstance(id_, str | int | float) or len(str(id_)) > 256:
        return None
    if (
        "method" not in message
        or message["method"] in UNANSWERED
        or not math.isfinite(0 if isinstance(id_, str) else id_)
    ):
        return None
    return json.dumps(id_)


def _cancelled(line: bytes) -> str | None:
    """The id of a request that a notification cancels."""
    if b"notifications/cancelled" not in line or line.count(b"[") + line.count(b"{") > DEEPEST:
        return None
    try:
        return json.dumps(as_object(as_object(json.loads(line.decode())).get("params")).get("requestId"))
    except ValueError:
        return None


def _refused(constant: str) -> Any:
    raise ValueError(constant)
