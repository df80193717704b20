"""Plants the faults of `faults.toml`, one at a time, in copies of the tree: the tests named with each must fail.

    python -m tests.planted.run [WORD ...] [--jobs N]        (or `make planted ARGS=...`)

With words only the faults whose name or file has one of them. Before any fault is planted, all these tests must pass.
Exits with 1 if a fault is not caught, or if what it replaces is not in its file any more.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

REPOSITORY = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).parent / "faults.toml"
LIMIT_S = 300
"""Seconds after which tests that do not end have not caught a fault."""

PASSED, FAILED = 0, 1
"""What pytest exits with; anything else is neither, such as an error in its command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A slip of a programmer: `find`, which is once in `file`, becomes `replace`; these tests must fail then.

    `new` says that nothing caught it until a test was written for it.
    """

    name: str
    file: str
    find: str
    replace: str
    caught_by: tuple[str, ...]
    new: bool = False

    def planted(self, source: str) -> str:
        """Return the source of its file with the fault. Raises ValueError unless what it replaces is there once."""
        if source.count(self.find) != 1:
            raise ValueError(f"{self.file} has {self.find!r} {source.count(self.find)} times")
        return source.replace(self.find, self.replace)


def faults() -> list[Fault]:
    """Return the table."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["fault"]
    return [Fault(**{**row, "caught_by": tuple(row["caught_by"])}) for row in rows]


class Copy:
    """A copy of the tree, whose sources tests import instead of those that are installed."""

    def __init__(self, path: Path) -> None:
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=REPOSITORY, capture_output=True, check=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (REPOSITORY / name).is_file():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, path / name)
        self._path = path
        sources = os.pathsep.join(str(path / each) for each in ("hub", "clients", "protos"))
        self._environment = {**os.environ, "PYTHONPATH": sources, "HYPOTHESIS_PROFILE": "quick"}

    def test(self, tests: Sequence[str], *options: str) -> tuple[int | None, str]:
        """Run tests, and return what pytest exits with, None after LIMIT_S, and its last lines."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests]
        try:
            run = subprocess.run(
                command, cwd=self._path, env=self._environment, capture_output=True, text=True, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return None, f"not over after {LIMIT_S} s"
        return run.returncode, "\n".join(run.stdout.splitlines()[-20:]) + run.stderr

    def verdict(self, fault: Fault) -> str:
        """Plant a fault, run its tests, and take it back; return "caught", or why it is not."""
        path = self._path / fault.file
        try:
            whole = path.read_text(encoding="utf-8")
            planted = fault.planted(whole)
        except (OSError, ValueError) as exc:
            return f"stale: {exc}"
        self._write(path, planted)
        try:
            code, said = self.test(fault.caught_by, "-x")
        finally:
            self._write(path, whole)
        if code == FAILED:
            return "caught"
        return "NOT CAUGHT" if code == PASSED else f"neither caught nor missed: {said}"

    @staticmethod
    def _write(path: Path, source: str) -> None:
        path.write_text(source, encoding="utf-8")
        # A compiled file counts as current if size and second are the same.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def judge(chosen: Sequence[Fault], jobs: int) -> bool:
    """Run the faults in so many copies at a time, print a line for each, and return whether all are caught."""
    copies: SimpleQueue[Copy] = SimpleQueue()

    def verdict(fault: Fault) -> str:
        copy = copies.get()
        try:
            return copy.verdict(fault)
        finally:
            copies.put(copy)

    with tempfile.TemporaryDirectory(prefix="planted-") as place, ThreadPoolExecutor(jobs) as threads:
        for number in range(jobs):
            copies.put(Copy(Path(place) / str(number)))
        tests = sorted({test for fault in chosen for test in fault.caught_by})
        print(f"{len(tests)} tests without a fault ...", flush=True)
        first = copies.get()
        code, said = first.test(tests, "-n", str(jobs))
        copies.put(first)
        if code != PASSED:
            print(f"some fail without any fault, or are not there:\n{said}")
            return False
        caught = 0
        at_work = {threads.submit(verdict, fault): fault for fault in chosen}
        for done, each in enumerate(as_completed(at_work), 1):
            caught += each.result() == "caught"
            print(f"{done:3} of {len(chosen)}  {each.result():12} {at_work[each].name}", flush=True)
    print(f"{caught} of {len(chosen)} are caught")
    return caught == len(chosen)


def main() -> None:
    """Read the command line, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (2)")
    given = parser.parse_args()
    chosen = [each for each in faults() if not given.words or any(w in each.name + each.file for w in given.words)]
    sys.exit(0 if chosen and judge(chosen, given.jobs) else 1)


if __name__ == "__main__":
    main()
