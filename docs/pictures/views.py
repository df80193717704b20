"""Takes a picture of each view of the page, in both themes and three sizes, to be looked at by people.

make views, or: python docs/pictures/views.py FOLDER [NAME ...]
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from make import at_the_page, go
from playwright.sync_api import Page, ViewportSize

SIZES = {
    "phone": ViewportSize(width=390, height=844),
    "laptop": ViewportSize(width=1280, height=800),
    "4k": ViewportSize(width=3840, height=2160),
}
LISTS = ("inbox", "calls", "servers", "catalog", "tasks", "hosts", "events", "history", "add")
OTHERS = {
    "call": "call/lunch",
    "server": "server/demo",
    "offers": "catalog/demo",
    "tool": "tool/git/git_log",
    "missing": "call/nope",
    "nowhere": "nope",
}
QUESTIONS = {
    "form": "for lunch?",
    "page": "Please sign up",
    "sampling": "Write a haiku",
    "task-form": "Where shall we go?",
}


def main(folder: Path, wanted: list[str]) -> None:
    """Takes all pictures, or those whose names contain one of the wanted words."""
    folder.mkdir(parents=True, exist_ok=True)
    with at_the_page() as (page, _):
        routes = {name: name for name in LISTS} | OTHERS
        for name, text in QUESTIONS.items():
            href = page.locator("a.card", has_text=text).get_attribute("href") or ""
            routes[name] = href.removeprefix("#/")
        for name, route in routes.items():
            with each_look(page, folder, name, wanted) as looks:
                for path in looks:
                    open_view(page, route)
                    page.wait_for_timeout(300)  # pictures only: what is drawn later is drawn by then
                    page.screenshot(path=path, animations="disabled")
        answered(page, folder, wanted, routes["form"])


def open_view(page: Page, route: str) -> None:
    """Goes to a view, and waits until it is there."""
    go(page, route)
    page.locator(f".page[data-route='#/{route}'] h1").wait_for()


@contextmanager
def each_look(page: Page, folder: Path, name: str, wanted: list[str]) -> Iterator[Iterator[Path]]:
    """The files of a view; for each, the page has the theme and the size."""

    def looks() -> Iterator[Path]:
        for size, viewport in SIZES.items():
            for theme in ("light", "dark"):
                file = folder / f"{name}-{size}-{theme}.png"
                if wanted and not any(word in file.name for word in wanted):
                    continue
                page.set_viewport_size(viewport)
                page.emulate_media(color_scheme=theme)
                yield file

    yield looks()


def answered(page: Page, folder: Path, wanted: list[str], route: str) -> None:
    """What is seen after an answer."""
    open_view(page, route)
    page.get_by_role("button", name="Send answer").click()
    page.get_by_text("returned").wait_for()
    with each_look(page, folder, "answered", wanted) as looks:
        for path in looks:
            page.wait_for_timeout(200)
            page.screenshot(path=path, animations="disabled")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
