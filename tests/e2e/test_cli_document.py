"""Every command there is, with its example, its options and its place in docs/cli.md."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from hubbub_client.cli.app import app

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs/cli.md").read_text()
# Documented elsewhere.
ELSEWHERE = {"tui"}


def commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path.strip(), command
        return
    for name, each in below.items():
        yield from commands(each, f"{path} {name}")


ALL = dict(commands(get_command(app)))


@pytest.mark.parametrize("name", ALL)
def test_a_command_has_an_example_and_a_place_in_the_document(name: str) -> None:
    assert ALL[name].epilog.startswith(f"Example: hubbub {name}")
    group, _, last = name.rpartition(" ")
    if name not in ELSEWHERE:
        assert re.search(rf"\b{name}\b", DOCUMENT) or (group in DOCUMENT and f"`{last}`" in DOCUMENT)
