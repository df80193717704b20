"""What is tested installs on every Python that is supported; what the image installs is that, pinned with hashes."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
HASHED = re.compile(r"^([\w.-]+)==([^\s;\\]+)[^\n]*?((?:\\\n +--hash=sha256:[0-9a-f]{64} ?)+)$", re.MULTILINE)
PYTHONS = """
import json
from importlib.metadata import distributions
print(json.dumps({each.name: each.metadata["Requires-Python"] or "" for each in distributions()}))
"""
ON_LINUX = {"sys_platform": "linux"}
EXTRAS = ("conditions", "connect", "fleet", "postgres", "telemetry")


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


def admit(python: str) -> dict[str, str]:
    """What the distributions in the environment of an interpreter say of the Pythons that they run on."""
    done = subprocess.run([python, "-c", PYTHONS], capture_output=True, check=True, text=True, timeout=60)
    return {plain(name): need for name, need in json.loads(done.stdout).items()}


def refuse(pythons: Mapping[str, str]) -> dict[str, str]:
    """Those that do not run on the oldest Python that the hub runs on."""
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert pythons
    return {name: need for name, need in pythons.items() if not SpecifierSet(need).contains(f"{oldest}.0")}


@pytest.mark.usefixtures("processes")
def test_what_is_tested_installs_on_the_oldest_python() -> None:
    names = pinned()
    assert refuse({name: need for name, need in admit(sys.executable).items() if name in names}) == {}


def test_the_demo_installs_on_the_oldest_python(mcp1_python: str) -> None:
    assert refuse(admit(mcp1_python)) == {}


def test_the_hosts_of_tests_install_on_the_oldest_python(hosts_python: str) -> None:
    assert refuse(admit(hosts_python)) == {}


def test_everything_that_the_image_needs_is_in_the_list_and_what_builds_the_package_too() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    wanted += [each for extra in EXTRAS for each in project["project"]["optional-dependencies"][extra]]
    of_linux = [each for each in map(Requirement, wanted) if each.marker is None or each.marker.evaluate(ON_LINUX)]
    names = {plain(each.name) for each in of_linux} - {project["project"]["name"]}
    assert names <= set(HASHES)


def add_needs(wanted: Iterable[str], extras: Iterable[str], found: set[str]) -> None:
    """Add what these need to run, with what that needs, as the distributions say that are installed here."""
    markers = [ON_LINUX | {"extra": extra} for extra in ("", *extras)]
    for each in map(Requirement, wanted):
        name = plain(each.name)
        if name in HASHES and (not each.marker or any(map(each.marker.evaluate, markers))) and name not in found:
            found.add(name)
            add_needs(distribution(name).requires or (), each.extras, found)


def test_what_the_image_removes_after_its_build_is_needed_by_nothing_in_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = [each for extra in EXTRAS for each in project["optional-dependencies"][extra]]
    needed: set[str] = set()
    add_needs([*project["dependencies"], *optional], (), needed)
    assert {"tomlkit", "typing-extensions", "protobuf"} <= needed
    (removed,) = re.findall(r"uninstall --yes ([^\\\n]*)", (ROOT / "hub/Dockerfile").read_text())
    assert set(removed.split()) & needed == set()


def test_the_image_installs_from_the_list_and_nothing_else() -> None:
    dockerfile = (ROOT / "hub/Dockerfile").read_text()
    installs = re.findall(r"pip (?:--python \S+ )?install [^\n]*", dockerfile)
    assert installs == [
        "pip --python /srv/hubbub/bin/python install --require-hashes --requirement requirements.txt",
        "pip --python /srv/hubbub/bin/python install --no-deps --no-build-isolation . \\",
        "pip --python /srv/tools/bin/python install --require-hashes --requirement tools.txt \\",
    ]
    assert "COPY hub/requirements.txt requirements.txt" in dockerfile
    assert "COPY hub/tools.txt tools.txt" in dockerfile
