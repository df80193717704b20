"""Takes the pictures of docs/tui.md from the terminal UI itself, over the demo. `python docs/pictures/tui.py`"""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import hubbub_client
from hubbub_tui.app import DARK, LIGHT, HubbubApp

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SERVERS = ("demo", "fetch", "git", "time")
TOOLS = ("order_lunch", "write_haiku", "sign_up", "plan_trip")
LIMIT_S = 60
# Pictures load nothing from elsewhere.
OUTSIDE = re.compile(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", re.DOTALL)

# For each picture: its colours, its size, the keys that lead there, and a text that shows that it is there.
PICTURES: tuple[tuple[str, str, tuple[int, int], Sequence[str], str], ...] = (
    ("inbox", DARK, (140, 26), ("1", "down"), "Tomato soup"),
    ("answer", DARK, (90, 26), ("1", "down", "enter", "tab", "home", "shift+end", "9", "ctrl+s"), "✗"),
    ("page", LIGHT, (90, 26), ("1", "slash", *"page", "enter", "enter"), "I have read"),
    ("call", DARK, (90, 26), ("5", *["down"] * 7, "enter", "ctrl+s"), "5/10"),
    ("catalog", LIGHT, (140, 28), ("5", *["down"] * 17), "inputSchema"),
)


@contextlib.contextmanager
def hub(data_dir: str) -> Iterator[None]:
    """The demo's hub, on a port of its own."""
    command = [sys.executable, "-m", "hubbubd", "--config", "docs/demo/hubbub.toml", "--data-dir", data_dir]
    with subprocess.Popen([*command, "--listen", "127.0.0.1:0"], cwd=ROOT, stdout=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdout is not None
        json.loads(process.stdout.readline())
        try:
            yield
        finally:
            process.terminate()


@contextlib.asynccontextmanager
async def screen(client: hubbub_client.Hub, size: tuple[int, int], theme: str) -> AsyncIterator[tuple[HubbubApp, Any]]:
    """The terminal UI in some colours, and what presses its keys."""
    app = HubbubApp(client, "ann")
    app.animation_level = "none"
    async with app.run_test(size=size) as pilot:
        app.theme = theme
        yield app, pilot
    await app.release_claims()


async def shows(app: HubbubApp, pilot: Any, text: str) -> str:
    """Waits until the screen shows a text; the picture of it."""
    async with asyncio.timeout(LIMIT_S):
        while text not in (picture := app.export_screenshot().replace("&#160;", " ")):
            await pilot.pause(0.1)
    return picture


async def take(client: hubbub_client.Hub) -> None:
    async with asyncio.timeout(LIMIT_S), contextlib.aclosing(client.servers.watch(SERVERS)) as events:
        connected: set[str] = set()
        async for event in events:
            if isinstance(event, hubbub_client.Upsert) and event.record.state == "connected":
                connected.add(event.record.name)
            if connected == set(SERVERS):
                break
    for tool in TOOLS:
        await client.start_tool("demo", tool)
    for name, theme, size, keys, seen in PICTURES:
        async with screen(client, size, theme) as (app, pilot):
            await shows(app, pilot, "Where shall we go?")
            for key in keys:
                await pilot.press(key)
                await pilot.pause(0.1)
                if key == "5":  # the entries are fetched; the next keys go down in them
                    await shows(app, pilot, "order_lunch")
            await shows(app, pilot, seen)
            await pilot.pause(0.5)
            (HERE / f"tui-{name}.svg").write_text(OUTSIDE.sub("", app.export_screenshot(title="hubbub tui")))


async def main() -> None:
    """Starts the demo, takes the pictures, ends it."""
    with tempfile.TemporaryDirectory() as data_dir, hub(data_dir):
        async with hubbub_client.connect(data_dir=data_dir, name="ann") as client:
            await take(client)


if __name__ == "__main__":
    asyncio.run(main())
