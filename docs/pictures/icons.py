"""Draws the icons of the installable page out of its icon.svg. Needs Chromium, as `make pictures` does."""

import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

STATIC = Path(__file__).parents[2] / "clients/hubbub_web/static"
SAFE = 0.72
"""Share of a maskable icon that no mask cuts off; the specification promises 0.8."""


def draw(page: object, svg: str, size: int, name: str) -> None:
    page.set_viewport_size({"width": size, "height": size})  # type: ignore[attr-defined]
    page.set_content(f"<style>body {{ margin: 0 }} svg {{ display: block }}</style>{svg}")  # type: ignore[attr-defined]
    page.screenshot(path=STATIC / name, omit_background=True)  # type: ignore[attr-defined]


def main() -> None:
    svg = (STATIC / "icon.svg").read_text(encoding="utf-8").replace("<svg", '<svg width="100%" height="100%"', 1)
    square = svg.replace('rx="8"', 'rx="0"')
    room = 32 / SAFE
    edge = (room - 32) / 2
    maskable = square.replace("0 0 32 32", f"{-edge} {-edge} {room} {room}")
    maskable = re.sub(
        r"<rect [^>]*/>",
        f'<rect x="{-2 * edge}" y="{-2 * edge}" width="{2 * room}" height="{2 * room}" fill="#3558d4"/>',
        maskable,
    )
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        sys.exit("chromium is missing: run `make chromium`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page()
        for size in (192, 512):
            draw(page, svg, size, f"icon-{size}.png")
        draw(page, square, 180, "icon-180.png")  # iOS rounds the corners itself
        draw(page, maskable, 512, "icon-maskable.png")
        browser.close()


if __name__ == "__main__":
    main()
