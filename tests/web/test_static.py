"""The page's own files: they parse, and do not even try what the policy forbids."""

import json
import re
import subprocess
from pathlib import Path
from struct import unpack
from typing import Any

import pytest

from hubbub_web.app import STATIC

ICONS = json.loads((STATIC / "manifest.webmanifest").read_text(encoding="utf-8"))["icons"]
MODULES = sorted((STATIC / "js").glob("*.js"))
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc|\.style\b|https?://(?!www\.w3\.org/2000/svg|example\.org)"
)
WRITTEN_ON = {
    "ground": "text quiet accent",
    "surface": "text quiet accent bad",
    "sunken": "text quiet",
    "accent-soft": "text accent",
    "accent": "on-accent",
    "good-soft": "good",
    "waits-soft": "waits",
    "bad-soft": "bad",
    "busy-soft": "busy",
}
"""The colours of words, by the colour of what they stand on."""


@pytest.fixture(scope="session")
def node(everything_command: list[str]) -> str:
    """The node that runs the reference server."""
    return everything_command[0]


def ran(node: str, script: str) -> Any:
    """What a script says in JSON; `JS` is where it imports the page's modules from."""
    program = f"const JS = {json.dumps((STATIC / 'js').as_uri())};{script}"
    command = [node, "--input-type=module", "--eval", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_module_parses(node: str) -> None:
    for module in MODULES:
        done = subprocess.run([node, "--check", str(module)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_a_module_makes_no_markup_and_imports_what_is_there(module: Path) -> None:
    source = module.read_text(encoding="utf-8")
    assert FORBIDDEN.findall(source) == []
    for name in re.findall(r'from "([^"]+)"', source):
        assert (module.parent / name).is_file(), name
    assert len(source.splitlines()) <= 400


@pytest.mark.parametrize("name", ["index.html", "offline.html"])
def test_the_page_has_no_script_or_style_of_its_own_text(name: str) -> None:
    page = (STATIC / name).read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*src=\"/static/)|<style|style=|\son\w+=", page) == []
    assert "//" not in page.replace("<!doctype", "")


@pytest.mark.parametrize("icon", ICONS, ids=lambda it: it["src"])
def test_an_icon_is_as_large_as_the_manifest_says(icon: dict[str, str]) -> None:
    content = (STATIC / icon["src"].removeprefix("/static/")).read_bytes()
    if icon["type"] == "image/png":
        width, height = unpack(">II", content[16:24])
        assert f"{width}x{height}" == icon["sizes"]
    else:
        assert b"<svg" in content


def test_text_has_enough_contrast_in_light_and_dark() -> None:
    light, _, dark = (STATIC / "style.css").read_text(encoding="utf-8").partition("(prefers-color-scheme: dark)")
    for scheme in (light, dark.partition("}")[0]):
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+);", scheme))
        pairs = [(text, ground) for ground, texts in WRITTEN_ON.items() for text in texts.split()]
        assert [pair for pair in pairs if _contrast(*(colours[name] for name in pair)) < 4.5] == []


def _contrast(one: str, other: str) -> float:
    """WCAG 2.2, contrast ratio."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    shares = [value / 255 for value in bytes.fromhex(digits)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
