"""Runs programs with a model of their own as MCP hosts of a hub that asks people, and says what each did.

    python -m tests.hosts.real [--only codex] [--over http]          (or `make hosts`)

Their model is a script on this machine, so none needs an account. Each begins with an empty home and nothing of the
environment. Exits with 1 when something went otherwise than it should. `--keep DIRECTORY` keeps what they wrote.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import anyio

from .programs import PROGRAMS
from .stage import HEAD, Row, Stage

REPOSITORY = Path(__file__).resolve().parents[3]


async def main() -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted({program.name for program in PROGRAMS}))
    parser.add_argument("--over", choices=("http", "bridge"))
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    installed = Path(os.environ.get("HUBBUB_PEERS") or REPOSITORY / ".peers") / "agents"
    rows: list[Row] = []
    skipped: set[str] = set()
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory(prefix="hubbub-real-hosts-") as folder:
        directory = options.keep or Path(folder)
        for program in (each for each in PROGRAMS if options.only in (None, each.name)):
            if not ((installed / "node_modules" / program.file).exists() and (installed / "node").exists()):
                skipped.add(program.name)
                continue
            for over in (each for each in program.over if options.over in (None, each)):
                stage = Stage(directory / f"{program.name}-{program.way}-{over}", program, installed, over)
                ran = await stage.run()
                print("\n".join(row.line() for row in ran), flush=True)
                rows += ran
    for name in sorted(skipped):
        print(f"{name}: skipped, as {installed} does not have it for this machine; `make hosts` installs it")
    wrong = sum(bool(row.wrong) for row in rows)
    print(f"{len(rows) - wrong} of {len(rows)} as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
