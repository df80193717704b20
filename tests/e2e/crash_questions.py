"""A hub that is killed between the questions of its servers and the answers of hosts; for `crash_hosts.py`."""

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import httpx2

from . import hosts
from .conftest import RunningHub

SCRIPTS = Path(__file__).parents[1] / "peers"
SETTINGS = {"mcp_listen": "127.0.0.1:0", "log_level": "warning"}
SHOWN = 20
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

    def lines(self) -> list[str]:
        """The counts, and what was wrong."""
        counts = [f"{count:8}  {name}" for name, count in sorted(self.counts.items())]
        return [*counts, f"{len(self.wrong):8}  wrong", *self.wrong[:SHOWN]]


@dataclass
class Kills:
    """A hub of two servers that ask, which is killed and started again."""

    start: Callable[..., Any]
    url: str
    """Of the server of 2026-07-28, which outlives the hubs."""
    journal: Path
    """What it was answered."""
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
            hub = await self._hub()
            retry = {**again, "inputResponses": {key: {"action": "accept", "content": {"name": "Ada"}}}}
            begun = monotonic()
            result = (await hosts.request(hub, "asking", "tools/call", retry))["result"]
            self.seen.waits_s.append(monotonic() - begun)
            well = bool(result.get("isError")) and "restarted" in result["content"][0]["text"]
            self.seen.check(well, f"loss {number}: {result}")
            self.seen.counts["clear errors"] += well
            await hub.connected("asking")
        await hub.kill()

    async def _hub(self, *connected: str) -> RunningHub:
        asks = {"command": sys.executable, "args": [str(SCRIPTS / "asking_server.py"), "stdio"]}
        servers = {"mrtr": {"url": self.url}, "asking": {**asks, "protocol": "2025-11-25"}}
        hub = await self.start(servers, hub=SETTINGS)
        if connected:
            await hub.connected(*connected)
        return hub
