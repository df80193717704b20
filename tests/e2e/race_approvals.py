"""Has many people approve the same call at once, and checks that exactly as many count as its rule needs.

    python -m tests.e2e.race_approvals --rounds 1000 [--approvers 50] [--fleet] [--seed N]

One, two and three approvals are needed in turn. Each approver has a token of its own with the role approver, and a
connection; some repeat their answer, or answer twice. With --fleet they are spread over the members of a fleet. Exits
with 1 when too many or too few count, one twice, when somebody who was late gets another error than that, or when
a call is not sent exactly once.
"""

import argparse
import json
import random
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import anyio

import hubbub_client
from hubbub_client import Grant, HubbubError

from .conftest import running, toml

PLAIN = Path(__file__).parents[1] / "peers" / "plain_server.py"
NEEDED = (1, 2, 3)
RULES = [{"name": f"needs-{needed}", "when": f"args.needed == {needed}", "needed": needed} for needed in NEEDED]
PLENTY = 1_000_000
LATE = ("ALREADY_ANSWERED", "ALREADY_APPROVED")
LIMIT_S = 60.0
APART_S = 0.005
"""Within so many seconds all begin to answer."""
AGAIN = 0.5
"""How often somebody answers twice at once, under one id or under two."""


@dataclass
class Race:
    """Approvers who race for each of many calls, and what was wrong."""

    seed: int
    journal: Path
    """What the server has received."""
    counts: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])
    sent: list[str] = field(default_factory=list[str])

    async def run(self, callers: Sequence[Any], approvers: Sequence[Any], rounds: int) -> None:
        """Race so often; each caller in turn makes a call. All are clients of a hub, or of members of a fleet."""
        self.chance = random.Random(self.seed)
        for number in range(rounds):
            needed = NEEDED[number % len(NEEDED)]
            await self._race(callers[number % len(callers)], approvers, f"call-{number}", needed)
        received = Counter(json.loads(line)["answer"]["text"] for line in self.journal.read_text().splitlines())
        self.violations += [
            f"{call_id} was sent {received[call_id]} times" for call_id in self.sent if received[call_id] != 1
        ]

    async def _race(self, caller: Any, approvers: Sequence[Any], call_id: str, needed: int) -> None:
        arguments = {"text": call_id, "needed": needed}
        params = {"name": "echo", "arguments": arguments}
        with anyio.fail_after(LIMIT_S):
            started = await caller.calls.start("plain", "tools/call", params, call_id=call_id)
            (request,) = await caller.inbox.list(call_id=started.id, states=["open"])
            accepted: list[str] = []
            async with anyio.create_task_group() as racing:
                for name, approver in self.chance.sample(list(enumerate(approvers)), len(approvers)):
                    ids = [secrets.token_hex(16)]
                    if self.chance.random() < AGAIN:
                        ids.append(self.chance.choice([*ids, secrets.token_hex(16)]))
                    delay_s = self.chance.random() * APART_S
                    for answer_id in ids:
                        racing.start_soon(self._approve, approver, f"p{name}", request, answer_id, delay_s, accepted)
            call = await caller.calls.handle(call_id).wait()
            answered = await caller.inbox.get(request.id)
        self._judge(call, answered, accepted, needed)

    async def _approve(
        self, approver: Any, name: str, request: Any, answer_id: str, delay_s: float, accepted: list[str]
    ) -> None:
        await anyio.sleep(delay_s)
        try:
            await approver.inbox.approve(request.id, digest=request.arguments_digest, answer_id=answer_id)
        except HubbubError as error:
            self.counts[error.reason] += 1
            if error.reason not in LATE:
                self.violations.append(f"{name} of {request.call_id}: {error!r}")
            return
        self.counts["acknowledged"] += 1
        accepted.append(name)

    def _judge(self, call: Any, answered: Any, accepted: list[str], needed: int) -> None:
        counted = list(answered.answer.get("by", ()))
        self.counts["counted"] += len(counted)
        self.sent.append(call.id)
        what = f"{call.id}, which needs {needed}"
        if len(counted) != needed or len(set(counted)) != needed:
            self.violations.append(f"{what}: {counted} count")
        # An answer that is repeated under its own id is acknowledged again, and counts once.
        if set(accepted) != set(counted):
            self.violations.append(f"{what}: {accepted} had the response that they count, and {counted} do")
        if list(call.approval.approved_by) != counted or call.state != "completed":
            self.violations.append(f"{what}: {call.state}, approved by {call.approval.approved_by}, {counted} count")


@asynccontextmanager
async def people(addresses: Sequence[str], token: str, approvers: int) -> AsyncGenerator[tuple[list[Any], list[Any]]]:
    """A client with the hub's own token at each address, and so many with tokens of approvers, spread over them."""
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(hubbub_client.connect(each, token)) for each in addresses]
        made: list[Any] = []
        for number in range(approvers):
            created = await callers[0].tokens.create(f"p{number}", [Grant(role="approver")])
            address = addresses[number % len(addresses)]
            made.append(await stack.enter_async_context(hubbub_client.connect(address, created.secret)))
        yield callers, made


async def race_at_hub(directory: Path, seed: int, rounds: int, approvers: int) -> Race:
    """Race at one hub."""
    race = Race(seed, directory / "journal.jsonl")
    tables = {
        "hub": {"shutdown_grace_s": 1, "rpcs_per_s_per_principal": PLENTY},
        "approvals": {"rules": RULES},
        "servers": {"plain": _server(race.journal)},
    }
    (directory / "hub.toml").write_text(toml(tables))
    arguments = ["--config", str(directory / "hub.toml"), "--data-dir", str(directory), "--listen", "127.0.0.1:0"]
    async with running(arguments) as hub:
        await hub.connected("plain")
        async with people([hub.ready["grpc"]], hub.token, approvers) as (callers, racers):
            await race.run(callers, racers, rounds)
    return race


async def race_in_fleet(directory: Path, seed: int, rounds: int, approvers: int) -> Race:
    """Race at all members of a fleet."""
    # Only this form needs a database.
    from ..fleet.databases import databases
    from ..fleet.members import members

    race = Race(seed, directory / "journal.jsonl")
    settings = {"rpcs_per_s_per_principal": PLENTY}
    more = {"approvals": {"rules": RULES}}
    with databases() as both:
        started = members(
            directory, both, {"plain": _server(race.journal)}, lease_ttl_s=10.0, settings=settings, more=more
        )
        async with started as fleet:
            addresses = [member.listen for member in fleet.all.values()]
            async with people(addresses, fleet.token, approvers) as (callers, racers):
                await race.run(callers, racers, rounds)
    return race


def _server(journal: Path) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(PLAIN)], "env": {"JOURNAL": str(journal)}}


async def main() -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--approvers", type=int, default=50)
    parser.add_argument("--fleet", action="store_true")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    run, begun = race_in_fleet if options.fleet else race_at_hub, monotonic()
    with tempfile.TemporaryDirectory() as directory:
        race = await run(Path(directory), options.seed, options.rounds, options.approvers)
    print(f"seed {race.seed}, {options.rounds} rounds, {monotonic() - begun:.0f} s: {dict(race.counts)}")
    for violation in race.violations:
        print(f"violation: {violation}")
    return 1 if race.violations else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
