"""A command at a terminal, and the person in front of it."""

import os
import pty
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import anyio
from anyio.abc import Process

from .conftest import BIN, LIMIT_S, environment


class Terminal:
    """What a person sees of a command and types into it."""

    def __init__(self, process: Process, screen: int) -> None:
        self.process = process
        self._screen = screen
        self.shown = ""
        self._read = 0

    async def sees(self, text: str) -> None:
        """Waits until a text has been shown, after what was waited for before."""
        with anyio.move_on_after(LIMIT_S):
            while text not in self.shown[self._read :]:
                await anyio.wait_readable(self._screen)
                self.shown += os.read(self._screen, 4096).decode(errors="replace").replace("\r\n", "\n")
        found = self.shown.find(text, self._read)
        assert found >= 0, f"{text!r} is not in {self.shown[self._read :]!r}"
        self._read = found + len(text)

    def types(self, keys: str) -> None:
        """Types these keys."""
        os.write(self._screen, keys.encode())

    async def answers(self, prompt: str, typed: str) -> None:
        """Waits for a prompt, and types a line."""
        await self.sees(prompt)
        self.types(f"{typed}\n")

    async def ends(self) -> int:
        """The exit status. What is shown meanwhile is read, so that the command does not wait for its screen."""
        with anyio.fail_after(LIMIT_S):
            async with anyio.create_task_group() as group:
                group.start_soon(self.reads_on)
                status = await self.process.wait()
                group.cancel_scope.cancel()
        return status

    async def reads_on(self) -> None:
        """Reads what is shown, until this is cancelled or the screen is gone."""
        while True:
            await anyio.wait_readable(self._screen)
            self.shown += os.read(self._screen, 4096).decode(errors="replace").replace("\r\n", "\n")


@asynccontextmanager
async def on_a_terminal(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    stdin: bool = True,
    cwd: Path | None = None,
    size: tuple[int, int] | None = None,
) -> AsyncIterator[Terminal]:
    """Runs a command on a terminal of its own; `size` has its lines and columns."""
    screen, own = pty.openpty()
    if size is not None:
        termios.tcsetwinsize(own, size)
    try:
        async with await anyio.open_process(
            command,
            stdin=own if stdin else DEVNULL,
            stdout=own,
            stderr=own,
            cwd=cwd,
            env={**env, "TERM": "xterm", "COLUMNS": "100"},
        ) as process:
            try:
                yield Terminal(process, screen)
            finally:
                if process.returncode is None:
                    process.kill()
    finally:
        os.close(screen)
        os.close(own)


@asynccontextmanager
async def terminal(hub: Any, *words: str, stdin: bool = True, **environ: str) -> AsyncIterator[Terminal]:
    """Runs `hubbub --as ann` on a terminal of its own."""
    command = [str(BIN / "hubbub"), "--data-dir", str(hub.data_dir), "--as", "ann", *words]
    async with on_a_terminal(command, {**environment(), **environ}, stdin=stdin) as person:
        yield person
