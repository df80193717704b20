"""A member that has a server stands still (SIGSTOP): what callers at the others hear, and when."""

import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

import hubbub_client
from hubbub_client import HubbubError

from .databases import databases
from .members import NAMES, Member, Members, members

LEASE_TTL_S = 3.0
LIMIT_S = 60
"""Of what a test waits for, each time."""

AGAIN_S = 0.05


@dataclass
class Fleet:
    """Three members of which one has the server `one`, and a client at each."""

    owner: Member
    others: list[str]
    clients: dict[str, Any]
    ended: list[str] = field(default_factory=list[str])
    """The calls that have ended, in this order."""
    outcomes: dict[str, str] = field(default_factory=dict[str, str])

    async def call(self, name: str, at: str, timeout_s: float | None = None) -> None:
        """Calls a tool at a member, and notes under a name what came of it."""
        try:
            with anyio.fail_after(LIMIT_S):
                said = await self.clients[at].call_tool("one", "count", {"steps": 0}, timeout_s=timeout_s)
            self.outcomes[name] = said.text
        except HubbubError as error:
            self.outcomes[name] = error.reason
        self.ended.append(name)


@pytest.fixture
async def fleet(tmp_path: Path, peer_scripts: Path, processes: None) -> AsyncGenerator[Fleet]:
    server = {"command": sys.executable, "args": [str(peer_scripts / "asking_server.py"), "stdio"]}
    async with AsyncExitStack() as stack:
        both = stack.enter_context(databases())
        made = await stack.enter_async_context(members(tmp_path, both, {"one": server}, lease_ttl_s=LEASE_TTL_S))
        clients: dict[str, Any] = {
            name: await stack.enter_async_context(hubbub_client.connect(made.address(name), made.token))
            for name in NAMES
        }
        with anyio.fail_after(LIMIT_S):
            owner = await owner_of(made, clients["a"])
        yield Fleet(owner, [name for name in NAMES if name != owner.name], clients)
        owner.wake()


async def owner_of(made: Members, client: Any) -> Member:
    while (name := (await client.fleet.status()).owner("one")) is None:
        await anyio.sleep(AGAIN_S)
    return made.all[name]


async def test_what_a_frozen_owner_was_sent_ends_once_it_has_lost_its_lease(fleet: Fleet) -> None:
    one, two = fleet.others
    for name in fleet.others:
        await fleet.call(f"before, at {name}", name)
    fleet.owner.stop()
    async with anyio.create_task_group() as calling:
        calling.start_soon(fleet.call, "shorter than a lease", one, LEASE_TTL_S / 6)
        calling.start_soon(fleet.call, "25 s", one, 25)
        calling.start_soon(fleet.call, "as long as it takes", two, 10 * LIMIT_S)
    for name in fleet.others:
        found = (await fleet.clients[name].fleet.status()).find(fleet.owner.name)
        assert found.state == "gone"
    await fleet.call("after", one)
    lost = dict.fromkeys(("shorter than a lease", "25 s", "as long as it takes"), "OWNER_LOST")
    answered = dict.fromkeys((f"before, at {one}", f"before, at {two}", "after"), "done")
    assert fleet.outcomes == lost | answered
    assert fleet.ended[2] == "shorter than a lease"


async def test_a_call_that_no_frozen_owner_was_sent_waits_for_the_next_one(fleet: Fleet) -> None:
    fleet.owner.stop()
    await fleet.call("first at this member", fleet.others[0], 25)
    assert fleet.outcomes == {"first at this member": "done"}
