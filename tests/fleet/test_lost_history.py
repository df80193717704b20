"""The database turns out to have another history: all members restart, and say for good what they had seen."""

import re
from pathlib import Path

import anyio

import hubbub_client
from hubbub_client import HubbubError

from .databases import databases
from .members import NAMES, members

LIMIT_S = 120
AGAIN_S = 0.2


async def losses(client: hubbub_client.Hub) -> list[str]:
    """What the members have noted of it; nothing while none answers."""
    try:
        entries = list(await client.audit.list(action="LoseHistory"))
    except HubbubError:
        return []
    assert {entry.principal for entry in entries} <= {"hub"}
    return sorted(entry.target or "" for entry in entries)


async def test_members_of_another_history_note_it_in_their_next_lives(tmp_path: Path, processes: None) -> None:
    with databases() as both, anyio.fail_after(LIMIT_S):
        async with (
            members(tmp_path, both, {}, lease_ttl_s=6.0) as fleet,
            hubbub_client.connect(fleet.address(), fleet.token) as client,
        ):
            both.primary.psql("UPDATE hubbub.meta SET id = 'another'")
            while len(found := await losses(client)) < len(NAMES):
                await anyio.sleep(AGAIN_S)
            await anyio.sleep(2)
            assert await losses(client) == found
            assert [target.partition(":")[0] for target in found] == sorted(NAMES)
            assert all(re.fullmatch(r"\w: revision \d+, now \d+", target) for target in found)
            for member in fleet.all.values():
                assert "has another history than this hub has seen up to revision" in member.log()
                assert "this member was declared gone" not in member.log()
                assert "others have taken" not in member.log()
