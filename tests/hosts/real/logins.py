"""Has programs log in at a hub as people do it, with a browser; each then makes a call, and loses its log-in.

    python -m tests.hosts.real.logins [--only codex] [--store]          (or `make hosts`)

Exits with 1 when something went otherwise than it should, or than is known (known.py). `--keep DIRECTORY` keeps what
they wrote, and pictures of the Inspector. `--store` keeps what was seen in results.json.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, cast

import anyio
import pexpect
from anyio import to_thread
from mcp import Client, StdioServerParameters, stdio_client
from pexpect import fdpexpect

from ...e2e.conftest import BIN
from . import results
from .browser import BrowserPerson, browsing
from .clients import Proxied
from .hubs import Venue, opened
from .login_clients import SdkScript, opening_page, starting_script
from .model import Model
from .places import Place
from .programs import (
    CLAUDE_CODE,
    CODEX,
    COPILOT_CLI,
    GEMINI_CLI,
    INSPECTOR,
    LOGGING_IN,
    MCP_REMOTE,
    OPENCODE,
    QWEN_CODE,
    Program,
    command_of,
    environment_of,
    find_version,
    install,
    prepare,
)
from .puppets import Failed, Puppet, Puppeteer, Script, started
from .results import LOG_IN, Outcome

REPOSITORY: Final = Path(__file__).resolve().parents[3]
PROMPT: Final = "Call the tools."
LIMIT_S: Final = 60
END_S: Final = 5
Errors = BaseExceptionGroup[BaseException]
MAX_SEEN: Final = 240
ROWS, COLUMNS = 40, 160
HEARS_S: Final = 60
"""Within which a program says that its log-in has ended."""
CHOSEN: Final = "\u203a"
"""Before what is chosen in a list of Qwen Code's."""
ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_=>])")
ENDED: Final = re.compile(
    r"\b401\b|unauthori[sz]ed|authenticat|needs auth|logged? ?in|log-?in|\btoken\b|re-?auth"
    r"|grant_types must contain",  # Gemini CLI tries to register as a program without a person, and shows the refusal
    re.IGNORECASE,
)
"""What tells a person that they have to log in once more, or why the program could not do that by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIn:
    """How a program logs in: what is typed at what it shows, and what it says in the end."""

    program: Program
    words: Sequence[str] = ()
    done: str = ""
    keys: Sequence[tuple[str, str]] = ()
    ready_words: Sequence[str] = ()
    """With which it writes `ready` once it is started after the log-in."""
    ready: str = ""
    """What it writes then when it has connected, if it lets its model call before that."""


AT_TERMINAL: Final = (
    LogIn(program=CLAUDE_CODE, words=("mcp", "login", "hubbub"), done="Authenticated with"),
    LogIn(program=CODEX, words=("mcp", "login", "hubbub"), done="Successfully logged in"),
    LogIn(program=OPENCODE, words=("mcp", "auth", "hubbub"), done="Authentication successful"),
    LogIn(
        program=GEMINI_CLI,
        words=("--skip-trust",),
        keys=(("1 MCP server", "/mcp auth hubbub\r"), ("want to continue", "\r")),
        done="Successfully authenticated",
    ),
    LogIn(
        program=QWEN_CODE,
        keys=(
            ("Type your message", "/mcp\r"),
            ("needs authentication", "\r"),
            (f"{CHOSEN} Reconnect", "j"),
            (f"{CHOSEN} Disable", "j"),
            (f"{CHOSEN} Authenticate", "\r"),
        ),
        done="✓ connected",
    ),
    # It opens the browser by itself. Started again, it shows its model the tools that it remembers, and still tries the
    # hub without its token; a call in that moment is asked to log in.
    LogIn(
        program=COPILOT_CLI,
        words=("--disable-builtin-mcps",),
        keys=(("Do you trust", "\r"),),
        done="1 server connected",
        ready_words=("--output-format", "json"),
        ready='"serverName":"hubbub","status":"connected"',
    ),
)
LOG_INS: Final = (
    *AT_TERMINAL,
    *(LogIn(program=each) for each in LOGGING_IN if each not in [log_in.program for log_in in AT_TERMINAL]),
)


class Caller(Protocol):
    """What makes a call."""

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool of the hub, and return all that came back, as text. Raises Failed."""
        ...


@dataclass
class Stay:
    """One program at one hub, from its log-in to the end of it."""

    log_in: LogIn
    directory: Path
    peers: Path
    person: BrowserPerson
    version: str

    async def run(self, report: Callable[[Outcome], None]) -> None:
        """Log in, call, and lose the log-in; stop at the first step that fails."""
        program = self.log_in.program
        async with AsyncExitStack() as stack:
            venue = await stack.enter_async_context(opened(self.directory / "hub"))
            script = Script()
            model = await stack.enter_async_context(Model(script.act).serving())
            place = Place(self.directory / "home", self.directory / "work", model, venue.url)
            place.home.mkdir()
            place.folder.mkdir()
            if program is INSPECTOR:
                await self._run_page(venue, place, report)
                return
            if self.log_in not in AT_TERMINAL:
                await self._run_client(venue, place, report)
                return
            prepare(program, place)
            hubbub = [str(BIN / "hubbub"), "--data-dir", str(venue.hub.data_dir)]
            await install(program, place, self.peers, hubbub, ("--login",), over=LOG_IN)
            if not await self._stop("log-in", lambda: self._log_in(venue, place), report):
                return
            host = await stack.enter_async_context(self._start(place, script))

            async def call() -> str:
                await host.wait_until_ready()
                return await _call(host, "hello")

            if await self._stop("call", call, report):
                await self._stop("revoked", lambda: _revoke(venue, host), report)

    async def _run_page(self, venue: Venue, place: Place, report: Callable[[Outcome], None]) -> None:
        """Do the same on a page of the program's."""
        command = command_of(self.log_in.program, self.peers)
        async with opening_page(command, place.url, self._environment(place), self.person, place.folder) as host:

            async def log_in() -> str:
                return await _find_token(venue, await host.log_in(self.person, venue.hub))

            async def revoke() -> str:
                await _end_log_in(venue)
                return f"it goes to the hub's page by itself: {await host.wait_for_log_in()}"

            if await self._stop("log-in", log_in, report) and (
                await self._stop("call", lambda: _call(host, "hello"), report)
            ):
                await self._stop("revoked", revoke, report)

    async def _run_client(self, venue: Venue, place: Place, report: Callable[[Outcome], None]) -> None:
        """Do the same with a program that logs in when it is started."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.person.let_in, venue.hub)
            async with self._open_client(place) as host:
                if await self._stop("log-in", lambda: _find_token(venue, "it has started"), report) and (
                    await self._stop("call", lambda: _call(host, "hello"), report)
                ):
                    if isinstance(host, SdkScript):
                        await self._stop("refresh", lambda: _refresh(host), report)
                    await self._stop("revoked", lambda: self._see_new_log_in(venue, host), report)
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def _open_client(self, place: Place) -> AsyncGenerator[Caller]:
        command, *words = command_of(self.log_in.program, self.peers)
        environment = self._environment(place)
        if self.log_in.program is not MCP_REMOTE:
            environment["NODE_PATH"] = str(self.peers / self.log_in.program.peers / "node_modules")
            async with starting_script([command, *words], place.url, environment, place.folder) as script:
                yield script
            return
        words += [place.url, "--allow-http", "--transport", "http-only"]
        parameters = StdioServerParameters(command=command, args=words, env=environment)
        with place.log.open("a") as log:
            async with Client(stdio_client(parameters, errlog=log)) as client:
                yield Proxied(client)

    async def _see_new_log_in(self, venue: Venue, host: Caller) -> str:
        """Revoke the log-in; the next call must open the browser once more."""
        await _end_log_in(venue)
        with anyio.fail_after(HEARS_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(host.call, "tour__text", {"text": "after the end"})
                await self.person.wait_for_address()
                tasks.cancel_scope.cancel()
        return "the next call opens the browser for a new log-in"

    async def _stop(self, name: str, work: Callable[[], Awaitable[str]], report: Callable[[Outcome], None]) -> bool:
        """Report what comes of one stop; return whether it works."""
        seen, works = "", True
        try:
            seen = await work()
        except* (Failed, TimeoutError) as errors:
            seen, works = "; ".join(str(each) for each in _find_causes(errors)), False
        seen = " ".join(seen.split())[:MAX_SEEN]
        report(Outcome(self.log_in.program.name, self.version, LOG_IN, name, works, seen))
        return works

    async def _log_in(self, venue: Venue, place: Place) -> str:
        """Have the program log in, and the person allow it; return what the program says."""
        said: list[str] = []
        with anyio.fail_after(LIMIT_S * 2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.person.let_in, venue.hub)
                said.append(await to_thread.run_sync(self._type, place))
        return await _find_token(venue, said[0])

    def _type(self, place: Place) -> str:
        """Run the program at a terminal, and type; return what it says when it has logged in."""
        command = [*command_of(self.log_in.program, self.peers), *self.log_in.words]
        environment = {**self._environment(place), "TERM": "xterm-256color"}
        ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
        # Not by pexpect's own fork, which would take the threads of gRPC along.
        process = subprocess.Popen(
            ["/usr/bin/setsid", "--ctty", "--wait", *command],
            **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
            env=environment,
            cwd=place.folder,
            start_new_session=True,
        )
        os.close(theirs)
        spawn: Any = fdpexpect.fdspawn
        child = spawn(ours, encoding="utf-8", codec_errors="replace", timeout=LIMIT_S)
        with place.log.open("a") as log:
            child.logfile_read = log
            try:
                for shown, typed in self.log_in.keys:
                    child.expect(_spaced(shown))
                    child.send(typed[:-1])
                    child.expect(pexpect.TIMEOUT, timeout=1)
                    child.send(typed[-1])
                child.expect(_spaced(self.log_in.done))
                return ESCAPES.sub("", str(child.after))
            except (pexpect.TIMEOUT, pexpect.EOF):
                shown = ESCAPES.sub("", str(child.before))
                raise Failed(f"it does not say {self.log_in.done!r}: {shown[-300:]}") from None
            finally:
                child.close()  # its terminal is gone: it ends
                with suppress(subprocess.TimeoutExpired):
                    process.wait(END_S)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _environment(self, place: Place) -> dict[str, str]:
        own = environment_of(self.log_in.program, place, self.peers)
        return {**own, **self.person.environment, "PATH": f"{self.person.directory}:{own['PATH']}"}

    @asynccontextmanager
    async def _start(self, place: Place, script: Script) -> AsyncGenerator[Puppeteer]:
        program, ready = self.log_in.program, self.log_in.ready
        command = [*command_of(program, self.peers), *self.log_in.ready_words, *program.words(place, PROMPT)]
        environment = self._environment(place)
        async with started(command, script, cwd=place.folder, env=environment, log=place.log, ready=ready) as host:
            yield host


async def _find_token(venue: Venue, said: str) -> str:
    """Return what a program says, and the token that it got."""
    tokens = [token.name for token in await venue.hub.client.tokens.list()]
    if len(tokens) != 1:
        raise Failed(f"it says {said!r}, and the hub has the tokens {tokens}")
    return f"{said}; token {tokens[0]}"


async def _end_log_in(venue: Venue) -> None:
    (token,) = await venue.hub.client.tokens.list()
    await venue.hub.client.tokens.revoke(token.name)


async def _refresh(host: SdkScript) -> str:
    """Have the access token refused; the refresh token must get another one within the call."""
    heard = await host.call("tour__text", {"text": "with another token"}, renew=True)
    if "with another token" not in heard or '"renewals":1' not in heard:
        raise Failed(heard)
    return heard


async def _revoke(venue: Venue, host: Puppet) -> str:
    """Revoke the log-in; the next call of the running program must say so."""
    await _end_log_in(venue)
    begun = anyio.current_time()
    with anyio.move_on_after(HEARS_S):
        try:
            heard = await host.call("tour__text", {"text": "after the end"})
        except Failed as error:
            heard = str(error)
        if ENDED.search(heard):
            return f"after {anyio.current_time() - begun:.0f} s: {heard}"
        raise Failed(f"its model heard ...{heard[-200:]}")
    raise Failed(f"nothing was heard within {HEARS_S} s")


def _find_causes(errors: Errors) -> list[BaseException]:
    """Return the errors that are no groups."""
    return [
        cause
        for each in errors.exceptions
        for cause in (_find_causes(cast("Errors", each)) if isinstance(each, BaseExceptionGroup) else [each])
    ]


def _spaced(text: str) -> str:
    """Return a pattern for a text that a terminal shows, in which the spaces may be movements."""
    gap = r"(?:\s|\x1b\[[0-9;?]*[A-Za-z])+"
    return gap.join(re.escape(word) for word in text.split())


async def _call(host: Caller, text: str) -> str:
    heard = await host.call("tour__text", {"text": text})
    if text not in heard:
        raise Failed(f"the model heard {heard[:200]}")
    return heard


async def main() -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[each.program.name for each in LOG_INS])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--store", action="store_true")
    options = parser.parse_args()
    peers = Path(os.environ.get("HUBBUB_PEERS") or REPOSITORY / ".peers")
    outcomes: list[Outcome] = []

    def report(outcome: Outcome) -> None:
        outcomes.append(outcome)
        print(outcome.line(), flush=True)

    with tempfile.TemporaryDirectory(prefix="hubbub-log-ins-") as folder:
        directory = options.keep or Path(folder)
        async with browsing(directory / "browser") as person:
            for log_in in (each for each in LOG_INS if options.only in (None, each.program.name)):
                version = find_version(log_in.program, peers)
                if not version:
                    print(f"{log_in.program.name}: skipped, as it is not installed for this machine")
                    continue
                await Stay(log_in, directory / log_in.program.name, peers, person, version).run(report)
    if options.store:
        results.store(outcomes)
    return 1 if any(each.wrong for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
