"""Kills a hub at random moments while people approve calls, and checks that none is sent without that, and none twice.

    python -m tests.e2e.crash_approvals --kills 200 [--seed N]

The seed decides when the hub is killed. Exits with 1 when a call was sent that nobody had approved, or sent twice, or
when one that was approved has no end.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import anyio

from hubbub_client import HubbubError, NotFound

from .conftest import RunningHub, running, toml

PLAIN = Path(__file__).parents[1] / "peers" / "plain_server.py"
LIMIT_S = 60.0
PATIENCE_S = 5.0
SPREAD_S = 0.08
"""Within so many seconds after people begin to answer the hub is killed."""
UNASKED = 0.15
"""How often it is killed before that."""


@dataclass
class ApprovalStorm:
    """A hub that is killed and started again over the same data, and what was promised meanwhile."""

    directory: Path
    seed: int
    started: list[str] = field(default_factory=list[str])
    approved: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """By call, the arguments whose approval somebody has tried to give."""
    promised: set[str] = field(default_factory=set[str])
    """The calls whose approval was acknowledged."""
    counts: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])

    @property
    def journal(self) -> Path:
        """What the server has received."""
        return self.directory / "journal.jsonl"

    async def run(self, kills: int) -> None:
        """Kill so often, then let the last hub finish what was approved, and judge."""
        self.chance = random.Random(self.seed)
        for number in range(kills):
            async with self._hub() as hub, anyio.create_task_group() as people:
                self._asked = anyio.Event()
                people.start_soon(self._act, hub, number)
                if self.chance.random() > UNASKED:
                    with anyio.move_on_after(PATIENCE_S):
                        await self._asked.wait()
                await anyio.sleep(self.chance.random() * SPREAD_S)
                await hub.kill()
                people.cancel_scope.cancel()
            self.counts["kills"] += 1
        async with self._hub() as hub, anyio.create_task_group() as people:
            people.start_soon(self._answer_all, hub)
            await self._judge(hub)
            people.cancel_scope.cancel()

    async def _act(self, hub: RunningHub, number: int) -> None:
        """Make two calls, and answer all that waits."""
        with suppress(HubbubError, OSError):
            for part in ("a", "b"):
                call_id = f"call-{number}-{part}"
                self.started.append(call_id)
                await hub.client.calls.start("plain", "tools/call", _params(call_id), call_id=call_id)
            await self._answer_all(hub)

    async def _answer_all(self, hub: RunningHub) -> None:
        """Answer all that waits: most is approved, some with other arguments, some denied."""
        async for event in hub.client.inbox.watch(states=["open"]):
            request = getattr(event, "record", None)
            if request is not None and request.call_id:
                await self._answer(hub, request)

    async def _answer(self, hub: RunningHub, request: Any) -> None:
        self._asked.set()
        if request.call_id in self.promised:
            self._check_second_question(request)
        decision = self.chance.random()
        with suppress(HubbubError):
            if decision < 0.2:
                await hub.client.inbox.deny(request.id, "no")
                self.approved.pop(request.call_id, None)
                self.counts["denied"] += 1
                return
            arguments = {"text": request.call_id, **({"changed": True} if decision > 0.7 else {})}
            self.approved[request.call_id] = arguments
            await hub.client.inbox.approve(request.id, arguments=arguments)
            self.promised.add(request.call_id)
            self.counts["approved"] += 1

    def _check_second_question(self, request: Any) -> None:
        """People are asked again where the server connects only after its tool was approved unseen; it says so."""
        self.promised.discard(request.call_id)
        self.counts["asked again"] += 1
        if "not known when" not in request.request["reason"]:
            self.violations.append(f"{request.call_id} was approved, and asked again: {request.request['reason']!r}")

    async def _judge(self, hub: RunningHub) -> None:
        for call_id in self.started:
            with suppress(NotFound):
                call = await hub.call(call_id)
                if call_id in self.promised:
                    self._check_end(call)
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        received = [json.loads(line)["answer"] for line in lines]
        times = Counter(arguments["text"] for arguments in received)
        self.counts["sent"] = len(received)
        self.violations += [f"{call_id} was sent {count} times" for call_id, count in times.items() if count > 1]
        for arguments in received:
            if self.approved.get(arguments["text"]) != arguments:
                self.violations.append(f"sent as {arguments}, approved as {self.approved.get(arguments['text'])}")

    def _check_end(self, call: Any) -> None:
        if call.state == "completed":
            self.counts["completed"] += 1
        elif call.error is not None and call.error.code == "HUB_RESTARTED":
            self.counts["broken off as it was sent"] += 1
        else:
            self.violations.append(f"{call.id} was approved, and ended as {call.state}: {call.error}")

    @asynccontextmanager
    async def _hub(self) -> AsyncGenerator[RunningHub]:
        config = self.directory / "hub.toml"
        server = {"command": sys.executable, "args": [str(PLAIN)], "env": {"JOURNAL": str(self.journal)}}
        tables = {"hub": {"shutdown_grace_s": 1}, "approvals": {"default": "ask"}, "servers": {"plain": server}}
        config.write_text(toml(tables))
        arguments = ["--config", str(config), "--data-dir", str(self.directory / "data"), "--listen", "127.0.0.1:0"]
        with (self.directory / "hub.log").open("ab") as log:
            async with running(arguments, stderr=log) as hub:
                yield hub


def _params(call_id: str) -> dict[str, Any]:
    return {"name": "echo", "arguments": {"text": call_id}}


async def main() -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    begun = monotonic()
    with tempfile.TemporaryDirectory() as directory:
        storm = ApprovalStorm(Path(directory), options.seed)
        with anyio.fail_after(LIMIT_S + 10 * options.kills):
            await storm.run(options.kills)
    print(f"seed {options.seed}, {monotonic() - begun:.0f} s: {dict(storm.counts)}")
    for violation in storm.violations:
        print(f"violation: {violation}")
    return 1 if storm.violations else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
