"""Hosts that do what a test says: programs with a model, whose model is the test, and clients without one.

All have the same few methods, so one tour goes through all of them.
"""

import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any, Protocol

import anyio
from anyio.abc import ByteReceiveStream, Process

from .dialects import Action, Say, Turn, Use

CALL_LIMIT_S = 75
"""For how long a tool's result is waited for: what takes longer counts as lost."""
START_LIMIT_S = 60
END_LIMIT_S = 30


class Failed(Exception):
    """What was tried did not work; the message says how."""


class Puppet(Protocol):
    """A host that gets each step as a command."""

    async def list_tools(self) -> Sequence[str]:
        """Return the tools that it has now, by names that end with those of the hub."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool of the hub, and return all that came back, as text. Raises Failed."""
        ...

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does."""
        ...

    async def end(self) -> None:
        """Let it come to its end, or end it."""
        ...


class _Ask:
    """A request to the model, and the action that it is answered with."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.action: Action = Say("done")
        self.answered = anyio.Event()

    def answer(self, action: Action) -> None:
        self.action = action
        self.answered.set()


class Script:
    """A model that asks a test what to do in each turn."""

    def __init__(self) -> None:
        self._current: _Ask | None = None
        self._arrived = anyio.Event()
        self._has_ended = False

    async def act(self, turn: Turn) -> Action:
        """Return what the model does in a turn, once the test has said it."""
        if not turn.tools or self._has_ended:  # a title for the conversation, or the like
            return Say("nothing to do")
        if self._current is not None and not self._current.answered.is_set():
            self._current.answer(Say("asked again"))  # the program gave up, and repeats its request
        ask = self._current = _Ask(turn)
        self._arrived.set()
        await ask.answered.wait()
        return ask.action

    async def find_turn(self, limit_s: float) -> Turn:
        """Return the turn that the program waits in. Raises Failed when it comes to none in time."""
        return (await self._find(limit_s)).turn

    async def use(self, tool: str, arguments: Mapping[str, Any], limit_s: float) -> Turn:
        """Let the model call a tool; return the next turn."""
        ask = await self._find(limit_s)
        name = ask.turn.find(tool)
        if name is None:
            raise Failed(f"its model has no {tool}")
        self._arrived = anyio.Event()
        ask.answer(Use(name, arguments))
        return (await self._find(limit_s)).turn

    def end(self) -> None:
        """Let the model say that it is done, now and from now on."""
        self._has_ended = True
        if self._current is not None:
            self._current.answer(Say("done"))
        self._arrived.set()

    async def _find(self, limit_s: float) -> _Ask:
        with anyio.move_on_after(limit_s):
            await self._arrived.wait()
        if self._has_ended:
            raise Failed("it ended")
        if not self._arrived.is_set() or self._current is None:
            raise Failed(f"nothing came back within {limit_s} s")
        return self._current


class _Words:
    """What a program writes, of which one word is waited for."""

    def __init__(self, word: str) -> None:
        self._word = word.encode()
        self._has_word = False
        self._settled = anyio.Event()

    async def copy(self, source: ByteReceiveStream, log: Path) -> None:
        """Write all that comes into a file, until the program ends."""
        seen = b""
        with log.open("ab", buffering=0) as output:
            async for part in source:
                output.write(part)
                seen = seen + part if not self._has_word else b""
                if self._word in seen:
                    self._has_word = True
                    self._settled.set()
        self._settled.set()

    async def wait(self, limit_s: float) -> None:
        """Wait for the word. Raises Failed when it does not come in time, or the program ends without it."""
        with anyio.move_on_after(limit_s):
            await self._settled.wait()
        if not self._has_word:
            raise Failed(f"it does not write {self._word.decode()!r}")


class Puppeteer:
    """A program with a model."""

    def __init__(self, script: Script, process: Process, words: _Words | None) -> None:
        self._script = script
        self._process = process
        self._words = words

    async def wait_until_ready(self) -> None:
        """Wait until it has written what `started` was asked to wait for, if anything. Raises Failed."""
        if self._words is not None:
            await self._words.wait(START_LIMIT_S)

    async def list_tools(self) -> Sequence[str]:
        """Return the tools that its model has."""
        return (await self._script.find_turn(START_LIMIT_S)).tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Let its model call a tool, and return what that heard."""
        before = len((await self._script.find_turn(START_LIMIT_S)).results)
        turn = await self._script.use(tool, arguments, CALL_LIMIT_S)
        return "\n".join([*turn.results[before:], *_find_images(turn.body)])

    def interrupt(self) -> None:
        """Send SIGINT to the program alone; a terminal would send it to the bridge as well."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    async def end(self) -> None:
        """Let its model say that it is done, and wait."""
        self._script.end()
        with anyio.move_on_after(END_LIMIT_S):
            await self._process.wait()


def _find_images(body: str) -> Sequence[str]:
    """Return the beginnings of PNG images in a request."""
    start = "iVBORw0KGgo"
    return ["[image/png]"] if start in body else []


@asynccontextmanager
async def started(
    command: Sequence[str], script: Script, *, cwd: Path, env: Mapping[str, str], log: Path, ready: str = ""
) -> AsyncGenerator[Puppeteer]:
    """Start a program with a model; whatever it started does not outlive the block.

    `ready` is what it writes when it can be called, if it lets its model call before that.
    """
    words = _Words(ready) if ready else None
    with log.open("ab") as output:
        pipes: dict[str, Any] = {"stdin": DEVNULL, "stdout": PIPE if words else output, "stderr": STDOUT}
        process = await anyio.open_process(command, cwd=cwd, env=env, start_new_session=True, **pipes)
    async with (
        process,
        anyio.create_task_group() as tasks,
    ):

        async def watch() -> None:
            await process.wait()
            script.end()

        tasks.start_soon(watch)
        if words is not None and process.stdout is not None:
            tasks.start_soon(words.copy, process.stdout, log)
        try:
            yield Puppeteer(script, process, words)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
