"""The terminal UI on a screen without a terminal, against a real hub and real servers."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from textual import _wait, events
from textual._compositor import LayoutUpdate
from textual.pilot import Pilot

import hubbub_client
from hubbub_tui.app import HubbubApp

from ..clients.conftest import ScriptedHub
from ..e2e.conftest import RunningHub, start_hub, start_shared_hub

__all__ = ["RunningHub", "start_hub", "start_shared_hub"]

LIMIT_S = 60
POLL_S = 0.1
ROOT = Path(__file__).parents[2]


class Person:
    """Somebody at the terminal: presses keys, and looks."""

    def __init__(self, app: HubbubApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def screen(self) -> str:
        """What the screen shows, as text. Textual's own way to it is a picture, which takes ten times as long."""
        shown = self.app.screen._compositor.render_update(full=True, screen_stack=self.app._background_screens)
        assert isinstance(shown, LayoutUpdate)
        return "\n".join("".join(strip.text for strip in line).rstrip() for line in shown.strips).rstrip("\n")

    async def press(self, *keys: str) -> None:
        """Presses keys."""
        await self.pilot.press(*keys)

    async def types(self, text: str) -> None:
        """Gives a text in place of what is there, at one go as from a clipboard."""
        await self.pilot.press("home", "shift+end", "delete")
        self.app.post_message(events.Paste(text))
        await self.pilot.pause()

    async def sees(self, *texts: str) -> str:
        """Waits until the screen shows all of these; the screen."""
        return await self._until(lambda shown: all(text in shown for text in texts), f"never saw {texts}")

    async def no_longer_sees(self, text: str) -> str:
        """Waits until the screen does not show this; the screen."""
        return await self._until(lambda shown: text not in shown, f"still saw {text!r}")

    async def _until(self, wanted: Callable[[str], bool], problem: str) -> str:
        shown = ""
        try:
            with anyio.fail_after(LIMIT_S):
                while not wanted(shown := self.screen):
                    await self.pilot.pause(POLL_S)
        except TimeoutError:
            pytest.fail(f"{problem}:\n{shown}", pytrace=False)
        return shown


@pytest.fixture(autouse=True)
def settles_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual waits before and after each key until the process rests. Here it checks four times as often."""
    monkeypatch.setattr(_wait, "SLEEP_GRANULARITY", _wait.SLEEP_GRANULARITY / 4)
    monkeypatch.setattr(_wait, "SLEEP_IDLE", _wait.SLEEP_IDLE / 4)


@asynccontextmanager
async def at_terminal(
    hub: RunningHub | ScriptedHub,
    who: str = "ann",
    size: tuple[int, int] = (80, 24),
    max_rows: int = 1000,
    *,
    notices: bool = False,
    token: str | None = None,
) -> AsyncIterator[Person]:
    """Runs the terminal UI; what it still claims at the end is given back. Notices cover a part of the screen.

    With a token it is the person of that token.
    """
    name = None if token else who
    async with hubbub_client.connect(data_dir=hub.data_dir, name=name, token=token, connect_timeout_s=1) as client:
        app = HubbubApp(client, who, max_rows)
        app.animation_level = "none"
        try:
            async with app.run_test(size=size, notifications=notices) as pilot:
                yield Person(app, pilot)
        finally:
            await app.release_claims()


def demo() -> dict[str, Any]:
    """The demo's server, configured."""
    peers = Path(os.environ.get("HUBBUB_PEERS") or ROOT / ".peers")
    return {"command": str(peers / "mcp1/bin/python"), "args": [str(ROOT / "docs/demo/server.py")]}


def peer(name: str, *arguments: str) -> dict[str, Any]:
    """A server that the tests bring along, configured."""
    return {"command": sys.executable, "args": [str(ROOT / "tests/peers" / name), *arguments]}
