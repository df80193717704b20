"""Kills a hub between the questions and the answers of hosts, and restarts it under the load of bridges.

    python -m tests.e2e.crash_hosts --kills 200 --restarts 100 --away 60       (or `make crash-hosts KILLS=200`)

What must hold: a host that comes back to a call of a 2026-07-28 server gets its result, and the tool ran once; of a
2025-11-25 server it hears within a second that the call is gone. Each request over a bridge has one response, and no
tool is called twice. Exits with 1 when something else was seen.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from ..ports import reserved
from .conftest import child, environment, starter
from .crash import listening
from .crash_bridges import Restarts
from .crash_questions import Kills, Seen

SCRIPTS = Path(__file__).parents[1] / "peers"
PROMPT_S = 1.0
"""Within which a host must hear that its call is gone."""


@dataclass(frozen=True)
class Stage:
    """What outlives the hubs: a server of 2026-07-28 at a URL, the journal of what it is answered, and the data."""

    directory: Path
    url: str
    start: Callable[..., Any]
    """Starts a hub over the same data."""

    @property
    def journal(self) -> Path:
        """What the servers have received."""
        return self.directory / "journal"

    def kills(self, chance: random.Random) -> Kills:
        """Kills between questions and answers."""
        return Kills(self.start, self.url, self.journal, chance)

    def restarts(self, chance: random.Random) -> Restarts:
        """Restarts under the load of bridges."""
        return Restarts(self.start, self.url, self.journal, chance)


@asynccontextmanager
async def stage(directory: Path) -> AsyncGenerator[Stage]:
    """A stage in a directory of its own."""
    async with AsyncExitStack() as stack:
        port = stack.enter_context(reserved())
        env = environment() | {"PORT": str(port), "JOURNAL": str(directory / "journal")}
        await stack.enter_async_context(child([sys.executable, str(SCRIPTS / "mrtr_server.py"), "http"], env=env))
        await listening(port)
        start = await stack.enter_async_context(starter(directory, apart=False))
        yield Stage(directory, f"http://127.0.0.1:{port}/mcp", start)


async def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--away", type=float, default=0, help="seconds for which the hub is away at the end")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="hubbub-crash-hosts-") as folder:
        async with stage(Path(folder)) as it:
            kills, restarts = it.kills(chance), it.restarts(chance)
            await kills.rounds(options.kills)
            await kills.losses(options.kills)
            _prompt(kills.seen)
            print("\n".join(kills.seen.lines()), flush=True)
            await restarts.run(options.restarts, options.away)
            print("\n".join(restarts.seen.lines()))
    return 1 if kills.seen.wrong or restarts.seen.wrong else 0


def _prompt(seen: Seen) -> None:
    """Says how long hosts waited to hear that their calls are gone, and whether that was too long."""
    if seen.waits_s:
        longest = max(seen.waits_s)
        print(f"{longest:.3f} s until the last of {len(seen.waits_s)} hosts heard that its call is gone")
        seen.check(longest <= PROMPT_S, f"a host waited {longest:.3f} s to hear that its call is gone")


if __name__ == "__main__":
    sys.exit(anyio.run(main))
