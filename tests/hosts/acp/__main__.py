"""Puts real coding agents behind a hub by ACP, and says what each did.

    python -m tests.hosts.acp [--only claude] [--stop refused] [--keep DIRECTORY] [--store] [--table] (`make hosts`)

Each has a script on this machine for a model, an empty home and nothing of the environment, so none needs an account.
Exits with 1 when something went otherwise than it should, or than is known. `--keep` keeps what they wrote, and
pictures of the page. `--store` keeps what came of it in results.json, and `--table` writes that into
docs/agents-behind.md.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from playwright.async_api import Browser, async_playwright

from ..real.programs import find_version
from . import trials
from .coders import CODERS, Coder
from .desk import Desk, Missed, opened
from .stops import LOG_IN, STOPS, find_no_login
from .trials import Trial

REPOSITORY = Path(__file__).resolve().parents[3]
LIMIT_S = 150


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[coder.name for coder in CODERS], action="append", help="repeatable")
    parser.add_argument("--stop", choices=[*STOPS, LOG_IN], action="append", help="only this; repeatable")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--table", action="store_true", help="only write the table")
    return parser.parse_args()


async def _try(coder: Coder, version: str, stop: str, desk: Desk) -> Trial:
    wrong = f"it did not end within {LIMIT_S} s"
    with anyio.move_on_after(LIMIT_S):
        try:
            await (find_no_login if stop == LOG_IN else STOPS[stop])(desk)
            wrong = ""
        except (Missed, TimeoutError, Exception) as error:  # what a stop meets is its result
            wrong = f"{'' if isinstance(error, Missed) else type(error).__name__ + ': '}{error}"
    return Trial(coder.name, version, stop, wrong)


async def _try_all(
    directory: Path, coder: Coder, version: str, peers: Path, browser: Browser, stops: Sequence[str]
) -> list[Trial]:
    done: list[Trial] = []
    groups = [[stop for stop in stops if stop != LOG_IN], [stop for stop in stops if stop == LOG_IN and coder.keys]]
    for number, group in enumerate(groups):
        if not group:
            continue
        place = directory / f"{coder.name}-{number}"
        try:
            async with opened(place, coder, peers, browser, logged_in=number == 0) as desk:
                for stop in group:
                    done.append(await _try(coder, version, stop, desk))
                    print(done[-1].line(), flush=True)
        except Missed as error:
            for stop in group[len([each for each in done if each.stop in group]) :]:
                done.append(Trial(coder.name, version, stop, str(error)))
                print(done[-1].line(), flush=True)
    return done


@asynccontextmanager
async def _browsing() -> AsyncGenerator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


async def main() -> int:
    """Run from the command line; the exit status."""
    options = _read_options()
    if options.table:
        trials.write_table(CODERS)
        return 0
    peers = Path(os.environ.get("HUBBUB_PEERS") or REPOSITORY / ".peers")
    done: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="hubbub-agents-") as folder:
        async with _browsing() as browser:
            for coder in (each for each in CODERS if not options.only or each.name in options.only):
                version = find_version(coder.program, peers)
                if not version:
                    print(f"{coder.name}: skipped, as {peers} does not have it for this machine")
                    continue
                stops = options.stop or [*STOPS, LOG_IN]
                done += await _try_all(options.keep or Path(folder), coder, version, peers, browser, stops)
    if options.store:
        trials.store(done)
    wrong = sum(not each.is_as_known for each in done)
    print(f"{len(done) - wrong} of {len(done)} as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
