"""The page's own files: they parse, and do not even try what the policy forbids."""

import json
import re
import subprocess
from pathlib import Path
from struct import unpack

import pytest

from hubbub_web.app import STATIC

ICONS = json.loads((STATIC / "manifest.webmanifest").read_text(encoding="utf-8"))["icons"]
MODULES = sorted((STATIC / "js").glob("*.js"))
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc|\.style\b|https?://(?!www\.w3\.org/2000/svg|example\.org)"
)


@pytest.fixture(scope="session")
def node(everything_command: list[str]) -> str:
    """The node that runs the reference server."""
    return everything_command[0]


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
