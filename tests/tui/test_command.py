"""`hubbub tui` on a real terminal; and what does without it."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import anyio
import pytest
from textual.app import App

import hubbub_client
from hubbub_tui.app import HubbubApp, mute_native_stderr, run

from ..clients.conftest import ScriptedHub, hub
from .conftest import LIMIT_S, demo

__all__ = ["hub"]

HUBBUB = str(Path(sys.executable).with_name("hubbub"))


async def test_the_command_fills_the_terminal_and_leaves_it_as_it_was(start_hub: Callable[..., Any]) -> None:
    hub = await start_hub({"demo": demo()})
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(terminal)
    command = [HUBBUB, "--data-dir", str(hub.data_dir), "--as", "ann", "tui"]
    shown = b""
    try:
        with anyio.fail_after(LIMIT_S):
            environ = os.environ | {"TERM": "xterm-256color"}
            pipes = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
            async with await anyio.open_process(command, env=environ, **pipes) as process:
                while b"Nothing waits" not in shown or b"as ann" not in shown:
                    await anyio.wait_readable(screen)
                    shown += os.read(screen, 65536)
                await hub.kill()
                while b"lost, reconnecting" not in shown:
                    await anyio.wait_readable(screen)
                    shown += os.read(screen, 65536)
                os.write(screen, b"q")
                while process.returncode is None:
                    with anyio.move_on_after(0.1):
                        await anyio.wait_readable(screen)
                        os.read(screen, 65536)
                assert process.returncode == 0
        assert termios.tcgetattr(terminal)[3] == before[3]
    finally:
        os.close(screen)
        os.close(terminal)


def test_what_libraries_log_does_not_run_over_the_screen(capfd: pytest.CaptureFixture[str]) -> None:
    with mute_native_stderr():
        os.write(2, b"noise")
        print("drawn", file=sys.__stderr__)
    os.write(2, b"heard again")
    assert capfd.readouterr().err == "drawn\nheard again"


async def test_a_fault_of_its_own_ends_the_command_with_it(hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: HubbubApp) -> None:
        raise RuntimeError("a fault of its own")

    monkeypatch.setattr(HubbubApp, "on_mount", fails)
    monkeypatch.setattr(HubbubApp, "run_async", partialmethod(App.run_async, headless=True))
    async with hubbub_client.connect(data_dir=hub.data_dir) as client:
        with pytest.raises(RuntimeError, match="a fault of its own"):
            await run(client, "ann")


async def test_without_a_terminal_it_says_that_it_needs_one(start_hub: Callable[..., Any]) -> None:
    hub = await start_hub()
    ran = await hub.hubbub("tui")
    assert (ran.status, ran.error["message"]) == (
        2,
        "the terminal UI needs a terminal; without one, hubbub inbox shows what waits, and hubbub web a page",
    )


@pytest.mark.usefixtures("processes")
def test_neither_the_library_nor_the_command_line_imports_what_only_the_screen_needs() -> None:
    code = "import sys, hubbub_client, hubbub_cli.app; print('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
