"""Numbers and times past every bound, in every field that has one, and whether the hub still tells all it has.

Each batch of inputs goes to a hub with a store of its own, which is stopped and started once more on it. A batch that
harms a list, a watch or a start is halved until the inputs are found that do it by themselves.
"""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import grpc
from tests.e2e.conftest import LIMIT_S
from tests.e2e.whole import WATCHES, events, path, troubles, unreadable

from hubbub_client import HubbubError

from .attempts import Attempts, servers
from .places import REVISIONS, Case, cases
from .subject import ENOUGH, Finding, Subject, Tally, peer_over_http, subject, suspicious

BATCH = 150
"""Inputs between two starts of the hub."""

LOOK = 30
"""Inputs between two looks at everything."""

WIDTH = 8
WRONG = (Finding, HubbubError, AssertionError, TimeoutError, anyio.EndOfStream, anyio.IncompleteRead, OSError)
"""What a hub that was harmed ends in, where it is looked at, stopped or started."""

PEER = Path(__file__).with_name("magnitude_peer.py")
HUB = {
    "allow_hosts": ["127.0.0.1"],
    "task_history_count": 1000,
    "watch_config": False,
    "deny_hosts": [],
}


async def magnitudes(tally: Tally, seed: int, directory: Path) -> None:
    """Tries a number in each place; places that were found wanting are not tried again."""
    async with AsyncExitStack() as started:
        ports: dict[str, str] = {}
        directory.mkdir(parents=True, exist_ok=True)
        for revision in REVISIONS:
            told = directory / f"told-http-{revision}.json"
            told.write_text("{}")
            command = [str(PEER), "http", revision, str(told)]
            ports[revision] = await started.enter_async_context(peer_over_http(command))
        trial = _Trial(tally, cases(seed, tally.total), directory, ports)
        for numbers in _batched(range(tally.total), BATCH):
            if len(tally.findings) >= ENOUGH:
                return
            await trial.find(numbers, first=True)
            tally.done += len(numbers)
            if tally.done % (10 * BATCH) == 0:
                tally.say(tally.summary())


def _batched(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (numbers[at : at + size] for at in range(0, len(numbers), size))


@dataclass(frozen=True)
class _Harm:
    """What came of inputs, which of them it may have been, and whether only the next hub showed it."""

    what: str
    suspects: Sequence[int]
    directory: Path
    by_the_next: bool


class _Trial:
    def __init__(self, tally: Tally, planned: Sequence[Case], directory: Path, ports: dict[str, str]) -> None:
        self._tally = tally
        self._cases = planned
        self._directory = directory
        self._ports = ports
        self._known: set[str] = set()
        self._hubs = itertools.count()

    async def find(self, numbers: Sequence[int], *, first: bool = False, again: bool = True) -> None:
        """Looks for the inputs that harm the hub by themselves, and notes them; `again`: also the next hub."""
        numbers = [number for number in numbers if self._cases[number].place.name not in self._known]
        if not numbers or len(self._tally.findings) >= ENOUGH:
            return
        before = len(self._tally.findings)
        outcomes: Counter[str] = Counter()
        harm = await self._harm(numbers, outcomes, again=again)
        if first:
            self._tally.outcomes.update(outcomes)
        if harm is None:
            return
        if len(numbers) == 1:
            later = "" if harm.by_the_next else await self._next(harm.directory)
            self._found(numbers[0], f"{harm.what}{later}")
            return
        suspects, rest = harm.suspects, numbers[numbers.index(harm.suspects[-1]) + 1 :]
        middle = (len(suspects) + 1) // 2
        for some in (suspects[:middle], suspects[middle:]):
            await self.find(some, again=harm.by_the_next)
        if len(self._tally.findings) == before:
            self._tally.found(f"inputs {suspects[0]} to {suspects[-1]}, none of them alone: {harm.what}")
        await self.find(rest, again=again)

    def _found(self, number: int, what: str) -> None:
        case = self._cases[number]
        if case.place.name not in self._known:
            self._known.add(case.place.name)
            self._tally.found(f"input {number}: {case}: {what}")

    async def _harm(self, numbers: Sequence[int], outcomes: Counter[str], *, again: bool) -> "_Harm | None":
        """What these inputs do to a hub, and to the next one on its store; None when both are well."""
        directory = self._directory / f"hub-{next(self._hubs)}"
        suspects, restarted = [numbers], False
        try:
            async with self._hub(directory) as tried:
                await self._try(tried, directory, suspects, outcomes)
            restarted = True
            if again:
                async with self._hub(directory) as tried:
                    await self._look(tried)
        except WRONG as exc:
            said = next(iter(suspicious(directory / "hub.log")), "")
            what = f"{'started again: ' if restarted else ''}{str(exc) or repr(exc)} {said}".rstrip()
            return _Harm(what, suspects[0], directory, by_the_next=restarted)
        return None

    async def _next(self, directory: Path) -> str:
        """What is wrong with the next hub on a store."""
        try:
            async with self._hub(directory) as tried:
                await self._look(tried)
        except WRONG as exc:
            return f"; started again: {str(exc) or repr(exc)} {next(iter(suspicious(directory / 'hub.log')), '')}"
        return ""

    @asynccontextmanager
    async def _hub(self, directory: Path) -> AsyncIterator[Subject]:
        directory.mkdir(exist_ok=True)
        for revision in REVISIONS:
            for name in (f"stdio-{revision}", f"shake-stdio-{revision}"):
                (directory / f"{name}.json").write_text("{}")
            (self._directory / f"told-http-{revision}.json").write_text("{}")
        async with _unwrapped(), subject(directory, servers(directory, self._ports), HUB) as tried:
            await tried.hub.connected(
                "good", *(f"{how}-{revision}" for how in ("stdio", "http") for revision in REVISIONS)
            )
            yield tried
        if wrong := [*suspicious(directory / "hub.log")]:
            raise Finding(f"log: {wrong[0]}")

    async def _try(
        self, tried: Subject, directory: Path, suspects: list[Sequence[int]], outcomes: Counter[str]
    ) -> None:
        """Tries the inputs; `suspects` are those since all was well, until all have been tried."""
        attempts = Attempts(tried, directory, self._directory, self._ports)
        wrong: list[str] = []
        every = suspects[0]
        async with _followed(tried, wrong):
            for some in _batched(every, LOOK):
                suspects[0] = some
                await self._together(attempts, some, outcomes)
                await self._look(tried)
                if wrong:
                    raise Finding(f"a watch: {wrong[0]}")
        suspects[0] = every

    async def _together(self, attempts: Attempts, numbers: Sequence[int], outcomes: Counter[str]) -> None:
        left = iter(numbers)
        wrong: list[tuple[int, str]] = []

        async def worker() -> None:
            for number in left:
                try:
                    with anyio.fail_after(LIMIT_S):
                        outcomes[await attempts.one(self._cases[number], number)] += 1
                except Finding as exc:
                    wrong.append((number, str(exc)))
                except TimeoutError:
                    wrong.append((number, f"no end within {LIMIT_S} s"))

        async with anyio.create_task_group() as workers:
            for _ in range(WIDTH):
                workers.start_soon(worker)
        for number, what in wrong:
            self._found(number, what)

    async def _look(self, tried: Subject) -> None:
        """Raises Finding unless all lists and watches are whole and a server that behaves is served."""
        if found := await troubles(tried.channel, tried.metadata):
            raise Finding("; ".join(found[:4]))
        good = await tried.hub.client.servers.get("good")
        if good.state != "connected":
            raise Finding(f"the good server is {good.state}: {good.error}")
        with anyio.fail_after(LIMIT_S):
            await tried.hub.client.call_tool("good", "echo", {"text": "x"})


@asynccontextmanager
async def _unwrapped() -> AsyncIterator[None]:
    """What task groups wrap, as it was: the first error."""
    try:
        yield
    except BaseExceptionGroup as group:
        exc: BaseException = group
        while isinstance(exc, BaseExceptionGroup):
            exc = exc.exceptions[0]
        raise exc from None


@asynccontextmanager
async def _followed(tried: Subject, wrong: list[str]) -> AsyncIterator[None]:
    """Meanwhile all watches are read, and whatever they say that nobody can read is noted."""

    async def follow(method: Any) -> None:
        try:
            async for response in events(tried.channel, tried.metadata, method):
                wrong.extend(f"{method.name}: {what}" for what in unreadable(response))
        except grpc.aio.AioRpcError as exc:
            wrong.append(f"{path(method)}: {exc.code().name} {exc.details()}")

    async with anyio.create_task_group() as watches:
        for method in WATCHES:
            watches.start_soon(follow, method)
        yield
        watches.cancel_scope.cancel()
