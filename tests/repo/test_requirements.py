"""What is tested installs on every Python that is supported; what the image installs is that, pinned with hashes."""

import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
HASHED = re.compile(r"^([\w.-]+)==([^\s;\\]+)[^\n]*?((?:\\\n +--hash=sha256:[0-9a-f]{64} ?)+)$", re.MULTILINE)
EXTRAS = ("connect", "fleet", "postgres", "telemetry", "web")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {plain(name): version for name, _, version in (line.partition("==") for line in lines)}


TEXT = (ROOT / "hub/requirements.txt").read_text()
HASHES = {plain(name): version for name, version, _ in HASHED.findall(TEXT)}


def test_every_line_of_the_list_has_a_version_and_hashes_and_no_address() -> None:
    assert len(HASHES) == len(re.findall(r"^[^\s#]", TEXT, re.MULTILINE))
    assert not re.search(r"://|--index|--find-links|@", TEXT)


def test_the_list_has_the_versions_that_are_tested() -> None:
    tested = pinned()
    assert {name: tested.get(name) for name in HASHES} == HASHES


def test_every_version_that_is_tested_installs_on_the_oldest_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=") + ".0"
    there = {plain(each.name): str(each.metadata.json.get("requires_python", "")) for each in distributions()}
    needs = {name: there[name] for name in pinned() if name in there}
    assert needs
    assert {name: need for name, need in needs.items() if not SpecifierSet(need).contains(oldest)} == {}


def test_everything_that_the_image_needs_is_in_the_list_and_what_builds_the_package_too() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    wanted += [each for extra in EXTRAS for each in project["project"]["optional-dependencies"][extra]]
    names = {plain(re.split(r"[\[<>=!~; ]", each)[0]) for each in wanted} - {project["project"]["name"]}
    assert names <= set(HASHES)


def test_the_image_installs_from_the_list_and_nothing_else() -> None:
    dockerfile = (ROOT / "hub/Dockerfile").read_text()
    installs = re.findall(r"pip install [^\n]*", dockerfile)
    assert installs == [
        "pip install --require-hashes --requirement requirements.txt",
        "pip install --no-deps --no-build-isolation ./clients/library . \\",
    ]
    assert "COPY hub/requirements.txt requirements.txt" in dockerfile
