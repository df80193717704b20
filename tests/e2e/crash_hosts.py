"""Kills a hub between the questions and the answers of hosts, and restarts it under the load of bridges.

    python -m tests.e2e.crash_hosts --kills 200 --restarts 100 --away 60       (or `make crash-hosts KILLS=200`)

What must hold: a host that comes back to a call of a 2026-07-28 server gets its result, and the tool ran once; of a
2025-11-25 server it hears within a second that the call is gone. Each request over a bridge has one response, and no
tool is called twice. Exits with 1 when something else was seen.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import httpx2

from ..ports import reserved
from . import hosts
from .conftest import RunningHub, child, environment, starter
from .crash import listening

SCRIPTS = Path(__file__).parents[1] / "peers"
SETTINGS = {"mcp_listen": "127.0.0.1:0", "log_level": "warning"}
PROMPT_S = 1.0
"""Within which a host must hear that its call is gone."""
ANSWERING = 0.5
"""How often the hub is killed while the answer is under way, and not before."""


@dataclass
class Seen:
    """What was counted, what was wrong, and how long hosts waited to hear that a call is gone, in seconds."""

    counts: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    waits_s: list[float] = field(default_factory=list[float])

    def check(self, well: bool, what: str) -> None:
        """Notes what is wrong."""
        if not well:
            self.wrong.append(what[:300])


@dataclass
class Kills:
    """A hub of two servers that ask, which is killed and started again. `journal` has what `mrtr` was answered."""

    start: Callable[..., Any]
    servers: dict[str, Any]
    journal: Path
    chance: random.Random
    seen: Seen = field(default_factory=Seen)

    async def rounds(self, count: int) -> None:
        """Kills the hub so many times between a question of the 2026-07-28 server and the host's retry, or in it."""
        hub = await self._hub("mrtr")
        for number in range(count):
            again, keys = await hosts.asked(hub, "mrtr", "three_forms")
            given = {key: {"action": "accept", "content": {"value": f"{number} {key}"}} for key in keys}
            retry, early = {**again, "inputResponses": given}, self.chance.random() >= ANSWERING
            if early:
                await hub.kill()
            else:
                await self._kill_while(hub, retry)
            hub = await self._hub("mrtr")
            result = (await hosts.request(hub, "mrtr", "tools/call", retry))["result"]
            self.seen.counts["kills before the answer" if early else "kills while it was under way"] += 1
            self._judge(number, given, result, early)
        await hub.kill()

    async def _kill_while(self, hub: RunningHub, retry: dict[str, Any]) -> None:
        async def answer() -> None:
            try:
                await hosts.request(hub, "mrtr", "tools/call", retry)
                self.seen.counts["results that came before the kill"] += 1
            except httpx2.HTTPError:
                pass

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            await anyio.sleep(self.chance.uniform(0, 0.05))
            await hub.kill()

    def _judge(self, number: int, given: dict[str, Any], result: dict[str, Any], early: bool) -> None:
        """One result; the tool must have run once if the hub was killed before the answer, else at least once."""
        lines = self.journal.read_text().splitlines()
        got = Counter(json.loads(line)["answer"]["content"]["value"] for line in lines)
        ran = {got[f"{number} {key}"] for key in given}
        well = not result.get("isError") and json.loads(result["content"][0]["text"]) == given
        self.seen.check(well, f"round {number}: {result}")
        self.seen.check(ran == {1} if early else ran <= {1, 2}, f"round {number}: its answers arrived {ran} times")
        self.seen.counts["results"] += well
        self.seen.counts["tools that ran once"] += ran == {1}
        self.seen.counts["answers that were sent again"] += ran == {2}

    async def losses(self, count: int) -> None:
        """Kills the hub so many times while the 2025-11-25 server waits for an answer."""
        hub = await self._hub("asking")
        for number in range(count):
            again, (key,) = await hosts.asked(hub, "asking", "ask")
            await hub.kill()
            hub = await self.start(self.servers, hub=SETTINGS)
            retry = {**again, "inputResponses": {key: {"action": "accept", "content": {"name": "Ada"}}}}
            begun = monotonic()
            result = (await hosts.request(hub, "asking", "tools/call", retry))["result"]
            self.seen.waits_s.append(monotonic() - begun)
            well = bool(result.get("isError")) and "restarted" in result["content"][0]["text"]
            self.seen.check(well, f"loss {number}: {result}")
            self.seen.counts["clear errors"] += well
            await hub.connected("asking")
        await hub.kill()

    async def _hub(self, server: str) -> RunningHub:
        hub = await self.start(self.servers, hub=SETTINGS)
        await hub.connected(server)
        return hub


def asking_servers(url: str) -> dict[str, Any]:
    """One server of each kind of revisions; that of 2026-07-28 is at a URL, and outlives the hub."""
    asks = {"command": sys.executable, "args": [str(SCRIPTS / "asking_server.py"), "stdio"]}
    return {"mrtr": {"url": url}, "asking": {**asks, "protocol": "2025-11-25"}}


async def kill_hubs(directory: Path, stack: AsyncExitStack, chance: random.Random) -> Kills:
    """The stage for kills, with the servers that outlive them."""
    port, journal = stack.enter_context(reserved()), directory / "journal"
    env = environment() | {"PORT": str(port), "JOURNAL": str(journal)}
    await stack.enter_async_context(child([sys.executable, str(SCRIPTS / "mrtr_server.py"), "http"], env=env))
    await listening(port)
    start = await stack.enter_async_context(starter(directory, apart=False))
    return Kills(start, asking_servers(f"http://127.0.0.1:{port}/mcp"), journal, chance)


async def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--away", type=float, default=0, help="seconds for which the hub is away at the end")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    chance, wrong = random.Random(options.seed), list[str]()
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hubbub-crash-hosts-")))
        kills = await kill_hubs(directory, stack, chance)
        await kills.rounds(options.kills)
        await kills.losses(options.kills)
        wrong += _reported(kills.seen)
    return 1 if wrong else 0


def _reported(seen: Seen) -> list[str]:
    """Prints what was seen; what was wrong."""
    wrong = list(seen.wrong)
    for name, count in sorted(seen.counts.items()):
        print(f"{count:8}  {name}")
    if seen.waits_s:
        longest = max(seen.waits_s)
        print(f"{longest:8.3f}  seconds until the last of {len(seen.waits_s)} hosts heard that its call is gone")
        if longest > PROMPT_S:
            wrong.append(f"a host waited {longest:.3f} s to hear that its call is gone")
    print("\n".join([f"{len(wrong):8}  wrong", *wrong[:20]]), flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(anyio.run(main))
