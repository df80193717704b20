"""The images: nobody builds them here, so what can be known of them without a container engine."""

import re
from pathlib import Path

import pytest

from .conftest import ROOT, installed, ran
from .test_compose import built

BUILT = built()


@pytest.mark.parametrize("path", BUILT, ids=lambda path: path.parent.name)
def test_the_linter_has_nothing_to_say(path: Path) -> None:
    ran(installed("hadolint"), "--failure-threshold", "style", path)


@pytest.mark.parametrize("path", BUILT, ids=lambda path: path.parent.name)
def test_the_context_has_what_is_copied_and_nothing_else(path: Path) -> None:
    first, *patterns = path.with_name("Dockerfile.dockerignore").read_text().split()
    given = {pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")}
    lines = [line.split()[1:-1] for line in path.read_text().splitlines() if re.match(r"COPY (?!--from)", line)]
    copied = {source for sources in lines for source in sources}
    assert first == "*"
    assert copied == given
    assert all((ROOT / source).exists() for source in copied)


@pytest.mark.parametrize("path", BUILT, ids=lambda path: path.parent.name)
def test_the_process_is_not_root_and_can_be_asked_how_it_is(path: Path) -> None:
    last = path.read_text().rpartition("\nFROM ")[2]
    user = re.search(r"^USER (\d+):(\d+)$", last, re.MULTILINE)
    assert user
    assert 0 not in map(int, user.groups())
    assert "\nHEALTHCHECK " in last
    assert 'ENTRYPOINT ["' in last
