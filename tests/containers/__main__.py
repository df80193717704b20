"""Builds the images and runs both files of Compose, on a Linux machine that need not have an engine.

    python -m tests.containers [--only images|single|fleet] [--before COMMIT]          (or `make containers`)

It needs root, and the packages of Debian, PyPI and npm; no registry of images. What stands for their images is in
images/, and the table says which. The first run takes some minutes; what can be used again stays in the folder of the
peers, some 6 GB. Exits with 1 when a step failed. Nothing else stays, also after Ctrl-C; after kill -9 of this program,
empty cgroups stay until it is run again.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from . import fleet, images, single
from .machine import Machine, find_obstacle
from .report import Report, StepFailed, expect

REPOSITORY = Path(__file__).resolve().parents[2]
MOST_MB = 300
MOST_TOOLS_MB = 170
"""What Node.js, npm and uv may add: the program of Node.js alone has 108."""
BACK = 500
"""So many commits back is the version before, as long as there is no release."""
LOAD = """
import importlib, pathlib, sysconfig
site = pathlib.Path(sysconfig.get_path("purelib"))
found = [each for each in site.rglob("*.so") if each.parent.name[-5:] != ".libs"]
for each in found:
    name = ".".join(each.relative_to(site).with_name(each.name.partition(".")[0]).parts)
    importlib.import_module(name)
print(len(found))
"""


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("images", "single", "fleet"))
    parser.add_argument("--before", metavar="COMMIT", help="the version to upgrade from; else the last release")
    return parser.parse_args()


def _find_before() -> str:
    """Return the last release, or a commit of some time ago."""
    for words in (("describe", "--tags", "--abbrev=0"), ("rev-parse", "--short", f"HEAD~{BACK}")):
        found = subprocess.run(("git", "-C", REPOSITORY, *words), capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.strip()
    raise StepFailed("there is no version before in this clone: fetch its history, or give one with --before")


def _build(machine: Machine, report: Report) -> None:
    with report.step("base images, made here") as step:
        images.build_debian(machine)
        base, version = images.build_python(machine, REPOSITORY)
        step.figure = f"{base}: CPython {version}, {images.find_size(machine, base):.0f} MB"
    with report.step("hub/Dockerfile, target hub") as step:
        images.build(machine, "hubbub:local", images.TREE / "hub/Dockerfile", target="hub")
        size = images.find_size(machine, "hubbub:local")
        expect(size <= MOST_MB, f"{size:.0f} MB, more than {MOST_MB}")
        step.figure = f"{size:.0f} MB"
    with report.step("each compiled library of the image can be imported") as step:
        words = ("docker", "run", "--rm", "--network", "none", "--entrypoint", "python", "hubbub:local", "-c", LOAD)
        step.figure = machine.run(*words).strip().splitlines()[-1]
    with report.step("hub/Dockerfile, target tools") as step:
        images.build(machine, "hubbub:tools", images.TREE / "hub/Dockerfile", target="tools")
        more = images.find_size(machine, "hubbub:tools") - size
        expect(more <= MOST_TOOLS_MB, f"Node.js, npm and uv are {more:.0f} MB, more than {MOST_TOOLS_MB}")
        step.figure = f"{size + more:.0f} MB, of which Node.js, npm and uv {more:.0f}"
    with report.step("target tools, read-only: npx and uvx fetch and run a program") as step:
        step.figure = images.run_tools(machine)


def _run(machine: Machine, report: Report, options: argparse.Namespace) -> None:
    _build(machine, report)
    if options.only == "images":
        return
    with report.step("images of a registry, made here of Debian's packages") as step:
        only_listen = images.build_standing(machine, REPOSITORY)
        step.figure = f"{', '.join(only_listen)} only listen"
    if options.only != "fleet":
        with report.step("the version before is built") as step:
            before = step.figure = options.before or _find_before()
            images.build_before(machine, REPOSITORY, before, "hubbub:before")
        _attempt(lambda: single.run(machine, report, "hubbub:before"))
    if options.only != "single":
        _attempt(lambda: fleet.run(machine, report))


def _attempt(run: Callable[[], None]) -> None:
    """Run a scenario; when it fails, which the table says, others go on."""
    with suppress(StepFailed):
        run()


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    """Run from the command line; the exit status."""
    options = _read_options()
    if obstacle := find_obstacle():
        print(obstacle, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _interrupt)
    report, status = Report(), 0
    machine = Machine(Path(os.environ.get("HUBBUB_PEERS") or REPOSITORY / ".peers").resolve(), REPOSITORY)
    try:
        with report.step("Debian and Docker"):
            machine.prepare()
        with machine.started():
            _run(machine, report, options)
    except StepFailed as failure:
        print(f"ended early: {failure}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = 128 + signal.SIGINT
    left = machine.find_leftovers()
    print(f"\n{report.table()}\n\nleft on this machine: {', '.join(left) or 'nothing but the cache'}")
    return status or int(report.has_failed or bool(left))


if __name__ == "__main__":
    sys.exit(main())
