"""Builds both distributions as they are released, and looks at them.

    python -m tests.deploy.distributions [--tag TAG] [--tools FOLDER] FOLDER

Each wheel and each source archive is built twice: from two copies of what git knows, which differ in place, modes,
times and locale. The bytes must be the same, and each archive must build the wheel. What is built is left in FOLDER.
TOOLS is an environment with twine, check-wheel-contents and cyclonedx-bom, which look at the files and write what
comes with them (`sbom/`). With a tag, it must be that of the version, and the changelog must have its date.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..repo import release

ROOT = Path(__file__).parents[2]
PROJECTS = (".", "clients/library")
LIMIT_S = 600
# All of ours are beside each other in the wheel, which that check finds odd.
ALLOWED = "W009"


class BuildFailed(Exception):
    """A distribution is not what it should be."""


@dataclass(frozen=True)
class Surroundings:
    """Where and how a copy lies, and what its builder's environment has; nothing of it may reach a distribution."""

    folder: str
    umask: int
    time: int
    variables: Mapping[str, str]


SURROUNDINGS = (
    Surroundings("one", 0o022, 1_600_000_000, {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}),
    Surroundings("zwölf mal 2", 0o077, 1_700_000_001, {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "2"}),
)


def run(*words: str | Path, cwd: Path = ROOT, umask: int = -1, **variables: str) -> str:
    """Runs a command with nothing but these variables around it; returns what it printed. Raises BuildFailed."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "NO_COLOR": "1", **variables}
    env |= {name: os.environ[name] for name in ("SSL_CERT_FILE", "PIP_CERT") if name in os.environ}
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        umask=umask,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    if done.returncode != 0:
        raise BuildFailed(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def copy(path: Path, around: Surroundings) -> None:
    """Copies what git knows, as it is now: a clone with what has not been committed yet."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            place = path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place)
            place.chmod(((ROOT / name).stat().st_mode | 0o066) & ~around.umask)
            os.utime(place, (around.time, around.time))


def build(project: Path, target: str, folder: Path, around: Surroundings) -> None:
    """Builds one distribution with the builder that is installed here, whose version constraints.txt names."""
    hatchling = Path(sys.executable).parent / "hatchling"
    words = ("build", "--target", target, "--directory", folder)
    run(hatchling, *words, cwd=project, umask=around.umask, **around.variables)


def digests(folder: Path) -> dict[str, str]:
    """The digest of each file of a folder, by its name."""
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in sorted(folder.iterdir())}


def same(first: Path, second: Path) -> None:
    """Raises BuildFailed unless two folders have the same files."""
    one, other = digests(first), digests(second)
    if different := [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]:
        raise BuildFailed(f"not the same bytes in {first} and {second}: {', '.join(sorted(different))}")


def build_twice(folder: Path, work: Path) -> None:
    """Leaves both distributions in the folder, built twice with the same bytes. Raises BuildFailed."""
    built: list[Path] = []
    for around in SURROUNDINGS:
        clone, output = work / around.folder / "clone", work / around.folder / "built"
        copy(clone, around)
        for project in PROJECTS:
            for target in ("sdist", "wheel"):
                build(clone / project, target, output, around)
        built.append(output)
    same(*built)
    for each in built[0].iterdir():
        shutil.copyfile(each, folder / each.name)


def build_from_archives(folder: Path, work: Path) -> None:
    """Builds the wheels again, from the source archives: the same bytes. Raises BuildFailed."""
    wheels, again = work / "wheels", work / "from archives"
    wheels.mkdir()
    for wheel in folder.glob("*.whl"):
        shutil.copyfile(wheel, wheels / wheel.name)
    for archive in folder.glob("*.tar.gz"):
        run("tar", "--extract", "--file", archive, "--directory", work)
        build(work / archive.name.removesuffix(".tar.gz"), "wheel", again, SURROUNDINGS[1])
    same(wheels, again)


def look_at(folder: Path, tools: Path) -> None:
    """What a package index takes, and nothing in a wheel that should not be there. Raises BuildFailed."""
    wheels = sorted(folder.glob("*.whl"))
    print(run(tools / "bin/twine", "check", "--strict", *wheels, *sorted(folder.glob("*.tar.gz"))).strip())
    print(run(tools / "bin/check-wheel-contents", "--ignore", ALLOWED, *wheels).strip())


def write_bill(wheel: Path, folder: Path, tools: Path, work: Path) -> Path:
    """Writes which packages of which versions a wheel was tested with, all extras of people included."""
    name, version, *_ = wheel.name.split("-")
    environment, python = work / f"{name}-env", work / f"{name}-env/bin/python"
    uv = Path(sys.executable).parent / "uv"
    run(uv, "venv", "--quiet", "--python", sys.executable, environment)
    pinned = ("--constraint", ROOT / "constraints.txt", "--find-links", wheel.parent)
    extras = "[all]" if name == "hubbub" else ""
    wanted = f"{name.replace('_', '-')}{extras}=={version}"
    run(uv, "pip", "install", "--quiet", "--python", python, *pinned, wanted)
    project = tomllib.loads((ROOT / ("pyproject.toml" if extras else "clients/library/pyproject.toml")).read_text())
    about = work / f"{name}.toml"
    described = {
        "name": project["project"]["name"],
        "version": version,
        "description": project["project"]["description"],
    }
    about.write_text("[project]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in described.items()))
    bill = folder / f"{name}.cdx.json"
    kind = "application" if extras else "library"
    words = ("--output-reproducible", "--validate", "--mc-type", kind, "--pyproject", about, "--output-file", bill)
    run(tools / "bin/cyclonedx-py", "environment", *words, python)
    if str(work) in bill.read_text():
        raise BuildFailed(f"{bill.name} names a folder of this machine")
    return bill


def make(folder: Path, tools: Path | None, tag: str | None) -> None:
    """Does all of it. Raises BuildFailed, or release.NotReady."""
    if tag is not None:
        release.check(tag)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="distributions-") as temporary:
        work = Path(temporary)
        build_twice(folder, work)
        build_from_archives(folder, work)
        if tools is not None:
            look_at(folder, tools)
            (folder / "sbom").mkdir()
            for wheel in sorted(folder.glob("*.whl")):
                count = len(json.loads(write_bill(wheel, folder / "sbom", tools, work).read_text())["components"])
                print(f"{wheel.name}: {count} packages in its bill of materials")
    for each in sorted(folder.glob("*.*")):
        print(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.stat().st_size:9}  {each.name}")


def main() -> int:
    """Does what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(prog="distributions", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tag", help="the tag of a release, as v1.2.3")
    parser.add_argument("--tools", type=Path, help="an environment with what looks at distributions")
    parser.add_argument("folder", type=Path)
    words = parser.parse_args()
    try:
        make(words.folder, words.tools, words.tag or None)
    except (BuildFailed, release.NotReady) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
