"""Takes a host through the tour, and judges each stop: it works, it fails as is known, or something is wrong."""

import re
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from subprocess import STDOUT
from typing import cast

import anyio

from ...e2e.conftest import BIN
from .dialogs import Dialog, answer_at_terminal
from .hubs import Venue, opened
from .model import Model
from .places import Place
from .programs import PROMPT, Program, command_of, environment_of, install, prepare
from .puppets import Failed, Puppet, Puppeteer, Script, started
from .results import Outcome
from .tour import DIALOG, STOPS, WRONG_TOKEN, Visit

LIMIT_S = 150
"""For one stop, with the start of the host."""
REFUSED_S = 20
"""Within which a client without a model says that it is refused, or waits for a person to log in."""
WRONG = "hbt_" + "0" * 43
"""A token that no hub has made."""
REFUSAL = re.compile(
    r"\b401\b|unauthori[sz]ed|authenticat|auth_?required|(needs|requires) auth|OAuth requires|not accept the token"
    r"|please authorize|token is not known",
    re.IGNORECASE,
)
"""What tells a person that it is about who they are."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TOKEN = re.compile(r"hbt_[A-Za-z0-9_-]+")


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
        if DIALOG in stops and self.program.dialog is not None:
            async with opened(self.directory / "dialog", hold_s=LIMIT_S) as venue:
                report(await self._answer_in_dialog(venue, self.program.dialog))
        if WRONG_TOKEN in stops:
            async with opened(self.directory / "wrong") as venue:
                report(await self._try_wrong_token(venue))

    async def _go(self, venue: Venue, folder: Path, left: list[str], report: Callable[[Outcome], None]) -> None:
        """Start the host, and go on until a stop fails."""
        async with AsyncExitStack() as stack:
            try:
                host = await self._enter(stack, venue, folder)
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
            seen = str(_find_cause(errors)) or f"it was not over within {LIMIT_S} s"
        return self._outcome(name, works=False, seen=seen)

    def _outcome(self, stop: str, *, works: bool, seen: str) -> Outcome:
        return Outcome(self.program.name, self.version, self.over, stop, works, " ".join(seen.split())[:240])

    async def _enter(self, stack: AsyncExitStack, venue: Venue, folder: Path) -> Puppet:
        """Start the host, which then waits for commands."""
        place = self._make_place(venue, folder, venue.token)
        if self.program.client is not None:
            return await stack.enter_async_context(self.program.client(place, self.peers))
        script = Script()
        place = replace(place, model=await stack.enter_async_context(Model(script.act).serving()))
        await self._prepare(venue, place)
        return await stack.enter_async_context(self._started(place, script))

    def _make_place(self, venue: Venue, folder: Path, token: str) -> Place:
        url = venue.url if self.over == "http" else ""
        bridge = [] if url else ["/usr/bin/env", f"HUBBUB_TOKEN={token}", *venue.bridge]
        place = Place(folder / "home", folder / "work", "", url, token, bridge)
        place.home.mkdir(parents=True)
        place.folder.mkdir()
        return place

    async def _prepare(self, venue: Venue, place: Place) -> None:
        prepare(self.program, place)
        hubbub = [str(BIN / "hubbub"), "--data-dir", str(venue.hub.data_dir)]
        if self.program.is_installed:
            await install(self.program, place, self.peers, hubbub, (), over=self.over)

    def _started(self, place: Place, script: Script) -> AbstractAsyncContextManager[Puppeteer]:
        command = [*command_of(self.program, self.peers), *self.program.words(place, PROMPT)]
        env = environment_of(self.program, place, self.peers)
        return started(command, script, cwd=place.folder, env=env, log=place.log)

    async def _answer_in_dialog(self, venue: Venue, dialog: Dialog) -> Outcome:
        """Let the host show a question at a terminal, and answer it there."""
        script = Script()
        place = self._make_place(venue, self.directory / "start-dialog", venue.token)
        works = False
        try:
            async with Model(script.act).serving() as url:
                place = replace(place, model=url)
                await self._prepare(venue, place)
                command, env = command_of(self.program, self.peers), environment_of(self.program, place, self.peers)
                with anyio.fail_after(LIMIT_S):
                    seen = await answer_at_terminal(dialog, command, env, place, venue, script)
                    works = True
        except* (Failed, TimeoutError) as errors:
            seen = str(_find_cause(errors)) or f"it was not over within {LIMIT_S} s"
        return self._outcome(DIALOG, works=works, seen=seen)

    async def _try_wrong_token(self, venue: Venue) -> Outcome:
        """Give the host a token that the hub does not know: what does a person see?"""
        place = self._make_place(venue, self.directory / "start-wrong", WRONG)
        if self.program.client is not None:
            said = f"it waits for more than {REFUSED_S} s"
            try:
                with anyio.move_on_after(REFUSED_S):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(_wait_for_refusal, place, tasks.cancel_scope)
                        async with self.program.client(place, self.peers) as host:
                            said = f"it began, with {len(await host.list_tools())} tools"
                        tasks.cancel_scope.cancel()
            except Exception as error:
                said = str(_find_cause(error))
            return self._judge_refusal(place, said)
        place = replace(place, is_required=False)
        if self.program.is_installed:  # `mcp install` looks whether the hub takes the token
            place = replace(place, token=venue.token)
        script = Script()
        async with Model(script.act).serving() as url:
            place = replace(place, model=url)
            await self._prepare(venue, place)
            _replace_token(place.home, venue.token)
            async with self._started(place, script) as host:
                with suppress(Failed):
                    await host.list_tools()
                await host.end()
        env = environment_of(self.program, place, self.peers)
        command = [*command_of(self.program, self.peers), *self.program.lists]
        with anyio.move_on_after(LIMIT_S):
            listed = await anyio.run_process(command, check=False, cwd=place.folder, env=env, stderr=STDOUT)
            return self._judge_refusal(place, "", listed.stdout.decode())
        return self._judge_refusal(place, "")

    def _judge_refusal(self, place: Place, said: str, listed: str = "") -> Outcome:
        """Say where a person reads of the token: in what the program says, or in what its list of servers says."""
        said += "\n" + (place.log.read_text(errors="replace") if place.log.exists() else "")
        for where, text in (("it says", said), ("only its list of servers says", listed)):
            found = next((line for line in _ESCAPES.sub("", text).splitlines() if REFUSAL.search(line)), None)
            if found:
                return self._outcome(WRONG_TOKEN, works=True, seen=f"{where}: {found.strip()}")
        shown = next((line for line in _ESCAPES.sub("", listed).splitlines() if "hubbub" in line), "nothing")
        return self._outcome(WRONG_TOKEN, works=False, seen=f"nothing says why; its list of servers: {shown.strip()}")


def _replace_token(home: Path, token: str) -> None:
    """Put a wrong token into the program's settings, in place of the hub's."""
    for file in (each for each in home.rglob("*") if each.is_file()):
        text = file.read_text(errors="replace")
        if token in text or _TOKEN.search(text):
            file.write_text(_TOKEN.sub(WRONG, text.replace(token, WRONG)))


async def _wait_for_refusal(place: Place, scope: anyio.CancelScope) -> None:
    """End a scope once the log says it: what waits for a person to log in does not end by itself."""
    while not place.log.exists() or not REFUSAL.search(place.log.read_text(errors="replace")):
        await anyio.sleep(0.1)
    scope.cancel()


def _find_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
