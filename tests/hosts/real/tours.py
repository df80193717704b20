"""Takes a host through the tour, and judges each stop: it works, it fails as is known, or something is wrong."""

import re
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import anyio

from ...e2e.conftest import BIN
from .hubs import Venue, opened
from .known import find_known
from .model import Model
from .places import Place
from .programs import Program, command_of, environment_of, install, prepare
from .puppets import Failed, Puppet, Script, started
from .tour import STOPS, WRONG_TOKEN, Visit

PROMPT = "Call the tools."
LIMIT_S = 150
"""For one stop, with the start of the host."""
WRONG = "hbt_" + "0" * 43
"""A token that no hub has made."""
REFUSAL = re.compile(r"(401|[Uu]nauthori[sz]ed|[Aa]uthenticat|[Nn]eeds auth|does not accept the token|token)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one stop."""

    program: str
    version: str
    over: str
    stop: str
    works: bool
    seen: str

    @property
    def wrong(self) -> str:
        """What is not as it is known to be."""
        known = find_known(self.program, self.over, self.stop)
        if self.works:
            return "it works now: remove it from known.py" if known else ""
        return "" if known else self.seen

    def line(self) -> str:
        """The outcome as a row for people."""
        judged = "ok" if self.works else "known"
        judged = f"WRONG: {self.wrong}" if self.wrong else judged
        return f"{self.program:14}{self.over:8}{self.stop:20}{judged:6}{self.seen}"


@dataclass
class Tour:
    """One host over HTTP or over the bridge, with a hub of its own."""

    directory: Path
    program: Program
    version: str
    peers: Path
    over: str

    async def run(self, stops: Collection[str], report: Callable[[Outcome], None]) -> None:
        """Go through these stops; a host that was lost is started again for the next one."""
        left = [name for name in STOPS if name in stops]
        if left:
            async with opened(self.directory / "hub") as venue:
                for start in count(1):
                    await self._go(venue, self.directory / f"start-{start}", left, report)
                    if not left:
                        break
        if WRONG_TOKEN in stops:
            async with opened(self.directory / "wrong") as venue:
                report(await self._try_wrong_token(venue))

    async def _go(self, venue: Venue, folder: Path, left: list[str], report: Callable[[Outcome], None]) -> None:
        """Start the host, and go on until a stop fails."""
        async with AsyncExitStack() as stack:
            try:
                host = await self._enter(stack, venue, folder, venue.token)
            except Failed as error:
                report(self._outcome(left.pop(0), works=False, seen=str(error)))
                return
            while left:
                outcome = await self._stop(left.pop(0), Visit(venue, host))
                report(outcome)
                if not outcome.works:
                    return
            await host.end()

    async def _stop(self, name: str, visit: Visit) -> Outcome:
        try:
            with anyio.fail_after(LIMIT_S):
                return self._outcome(name, works=True, seen=await STOPS[name](visit))
        except* (Failed, TimeoutError) as errors:
            error: BaseException = errors
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            seen = str(error) or f"it was not over within {LIMIT_S} s"
        return self._outcome(name, works=False, seen=seen)

    def _outcome(self, stop: str, *, works: bool, seen: str) -> Outcome:
        known = {"program": self.program.name, "version": self.version, "over": self.over}
        return Outcome(**known, stop=stop, works=works, seen=" ".join(seen.split())[:240])

    async def _enter(self, stack: AsyncExitStack, venue: Venue, folder: Path, token: str) -> Puppet:
        """Start the host, which then waits to be told what to do."""
        place = Place(folder / "home", folder / "work", "", venue.url, token, venue.bridge)
        place.home.mkdir(parents=True)
        place.folder.mkdir()
        if self.program.client is not None:
            return await stack.enter_async_context(self.program.client(place, self.peers, self.over))
        script = Script()
        place = replace(place, model=await stack.enter_async_context(Model(script.act).serving()))
        prepare(self.program, place)
        hubbub = [str(BIN / "hubbub"), "--data-dir", str(venue.hub.data_dir)]
        if self.program.is_installed:
            await install(self.program, place, self.peers, hubbub, (), over=self.over)
        command = [*command_of(self.program, self.peers), *self.program.words(place, PROMPT)]
        env = environment_of(self.program, place, self.peers)
        log = stack.enter_context((folder / "program.log").open("ab"))
        return await stack.enter_async_context(started(command, script, cwd=place.folder, env=env, log=log))

    async def _try_wrong_token(self, venue: Venue) -> Outcome:
        """Give the host a token that the hub does not know: what does a person see?"""
        return self._outcome(WRONG_TOKEN, works=False, seen="not tried")
