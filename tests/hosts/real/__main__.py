"""Runs real MCP hosts before a hub, and says what each did.

    python -m tests.hosts.real [--only codex] [--over http] [--approvals | --tour]          (or `make hosts`)

Those with a model get a script on this machine for one, so none needs an account. Each begins with an empty home and
nothing of the environment. Exits with 1 when something went otherwise than it should, or than is known (known.py).
`--keep DIRECTORY` keeps what they wrote. `--store` keeps what the tour saw in results.json, and `--table` writes that
into docs/hosts/README.md.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import anyio

from . import results
from .programs import APPROVING, PROGRAMS, find_version
from .results import Outcome
from .stage import HEAD, Row, Stage
from .tour import DIALOG, STOPS, WRONG_TOKEN
from .tours import Tour

REPOSITORY = Path(__file__).resolve().parents[3]
ALL_STOPS = (*STOPS, DIALOG, WRONG_TOKEN)


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted({program.name for program in (*PROGRAMS, *APPROVING)}))
    parser.add_argument("--over", choices=("http", "bridge"))
    parser.add_argument("--stop", choices=ALL_STOPS, action="append", help="of the tour, only this one; repeatable")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--approvals", action="store_true", help="only approvals")
    parser.add_argument("--tour", action="store_true", help="only the tour")
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--table", action="store_true", help="only write the table")
    return parser.parse_args()


async def _approve(options: argparse.Namespace, directory: Path, peers: Path) -> list[Row]:
    rows: list[Row] = []
    print(HEAD, flush=True)
    for program in (each for each in APPROVING if options.only in (None, each.name) and find_version(each, peers)):
        for over in (each for each in program.over if options.over in (None, each)):
            ran = await Stage(directory / f"{program.name}-{program.way}-{over}", program, peers, over).run()
            print("\n".join(row.line() for row in ran), flush=True)
            rows += ran
    return rows


async def _tour(options: argparse.Namespace, directory: Path, peers: Path) -> list[Outcome]:
    outcomes: list[Outcome] = []

    def report(outcome: Outcome) -> None:
        print(outcome.line(), flush=True)
        outcomes.append(outcome)

    for program in (each for each in PROGRAMS if options.only in (None, each.name)):
        version = find_version(program, peers)
        if not version:
            print(f"{program.name}: skipped, as {peers} does not have it for this machine; `make hosts` installs it")
            continue
        for over in (each for each in program.over if options.over in (None, each)):
            tour = Tour(directory / f"tour-{program.name}-{over}", program, version, peers, over)
            await tour.run(options.stop or ALL_STOPS, report)
    return outcomes


async def main() -> int:
    """Run from the command line; the exit status."""
    options = _read_options()
    if options.table:
        results.write_table({program.name: program.title for program in PROGRAMS})
        return 0
    peers = Path(os.environ.get("HUBBUB_PEERS") or REPOSITORY / ".peers")
    rows: list[Row] = []
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="hubbub-real-hosts-") as folder:
        directory = options.keep or Path(folder)
        if not options.approvals:
            outcomes = await _tour(options, directory, peers)
        if not options.tour:
            rows = await _approve(options, directory, peers)
    if options.store:
        results.store(outcomes)
    wrong = sum(bool(each.wrong) for each in (*rows, *outcomes))
    print(f"{len(rows) + len(outcomes) - wrong} of {len(rows) + len(outcomes)} as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
