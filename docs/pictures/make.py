"""Takes the pictures of the documents from the demo: a hub, its servers, the web inbox and a browser.

make pictures
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BIN = Path(sys.executable).parent
AGENT = ROOT / "tests" / "peers" / "agent_server.py"
"""Asks as codex does."""
DESKTOP, PHONE = {"width": 1280, "height": 720}, {"width": 390, "height": 700}

CALLS = {
    "lunch": ("order_lunch",),
    "sign-up": ("sign_up",),
    "haiku": ("write_haiku",),
    "trip": ("plan_trip",),
    "tip": ("tip_kitchen", "amount=20", "note=Thank you!"),
}
"""The calls that wait, by their ids."""


def main() -> None:
    """Starts everything, takes the pictures, ends everything."""
    with at_the_page() as (page, _):
        take_all(page)


@contextmanager
def at_the_page() -> Iterator[tuple[Page, str]]:
    """The page with the inbox of the demo, where questions wait, and the hub's data; all of it ends afterwards."""
    browser = chromium_path()
    with tempfile.TemporaryDirectory() as data_dir:
        hub = [sys.executable, "docs/demo/run.py", "--listen", "127.0.0.1:0", "--data-dir", data_dir]
        with running(hub, data_dir) as said:
            said.readline()
            client(data_dir, "servers", "list", "--wait", "connected", "--timeout", "60")
            for call_id, words in CALLS.items():
                client(data_dir, "call", "demo", *words, "--detach", "--call-id", call_id)
            client(data_dir, "servers", "add", "codex", "--", sys.executable, str(AGENT))
            client(data_dir, "call", "codex", "codex", "prompt=patch", "--detach", "--call-id", "patch")
            bridge = [str(BIN / "hubbub"), "--json", "web", "--no-browser"]
            with running(bridge, data_dir) as said, sync_playwright() as playwright:
                chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
                page = chromium.new_page(viewport=DESKTOP)
                page.goto(json.loads(said.readline())["url"])
                page.get_by_label("Your name").fill("Ada")
                page.get_by_role("button", name="Start").click()
                page.locator("a.card").nth(len(CALLS)).wait_for()
                yield page, data_dir
                chromium.close()


def chromium_path() -> str:
    """The browser of this machine."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        sys.exit("chromium is missing: run `make chromium`")
    return browser


def take_all(page: Page) -> None:
    """The pictures, one after the other."""
    take(page, "web-inbox")
    page.locator("a.card", has_text="for lunch?").click()
    page.get_by_text("You are answering this").wait_for()
    page.get_by_label("Tomato soup").check()
    page.emulate_media(color_scheme="dark")
    take(page, "web-form")
    page.get_by_role("button", name="Send answer").click()
    page.get_by_text("arrived at the server").wait_for()
    page.emulate_media(color_scheme="light")
    go(page, "call/lunch")
    page.locator(".pill", has_text="completed").first.wait_for()
    take(page, "web-call")
    go(page, "inbox")
    page.locator("a.card", has_text="tip_kitchen").click()
    page.locator("button[data-sends]:not([aria-disabled])", has_text="Approve").wait_for()
    take(page, "web-approval")
    page.set_viewport_size(PHONE)
    go(page, "inbox")
    page.locator("a.card", has_text="Please sign up").click()
    page.get_by_label("I have looked").check()
    take(page, "web-phone")
    go(page, "inbox")
    page.locator("a.card", has_text="code changes").click()
    page.get_by_text("You are answering this").wait_for()
    take(page, "web-agent")


def go(page: Page, route: str) -> None:
    page.evaluate("route => { location.hash = route }", f"#/{route}")


def take(page: Page, name: str) -> None:
    """Writes one picture."""
    page.mouse.move(0, 0)
    page.screenshot(path=HERE / f"{name}.png", animations="disabled")


def client(data_dir: str, *words: str) -> None:
    """Runs `hubbub`."""
    subprocess.run(  # noqa: S603 - our own command
        [BIN / "hubbub", *words], env=environment(data_dir), stdout=subprocess.DEVNULL, check=True, timeout=90
    )


def environment(data_dir: str) -> dict[str, str]:
    """Leads to this hub, and to no other."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HUBBUBD_")}
    return kept | {"HUBBUB_DATA_DIR": data_dir}


@contextmanager
def running(command: list[str], data_dir: str) -> Iterator[IO[str]]:
    """What a command prints while it runs; it is ended afterwards."""
    process = subprocess.Popen(  # noqa: S603 - our own commands
        command, cwd=ROOT, env=environment(data_dir), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    main()
