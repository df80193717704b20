"""The vault of a fleet: what its members read and write."""

import asyncio
from typing import Any

import asyncpg
import pytest

from hubbubd.errors import Overtaken
from hubbubd.store import StoreError

from .vaults import LIMIT_S, OLD, OTHER, TOKEN, Fleet, keys


async def test_what_one_member_keeps_another_one_reads(fleet: Fleet):
    a, b = await fleet.vault("a"), await fleet.vault("b")
    await a.put("one", TOKEN)
    await a.put("one/spec", OTHER)
    assert (a.get("one"), a.get("one/spec"), a.get("two")) == (TOKEN, OTHER, None)
    assert b.get("one") is None
    await b.refresh("one", "two")
    assert (b.get("one"), b.get("one/spec"), b.get("two")) == (TOKEN, OTHER, None)
    assert (await fleet.vault("c")).get("one") == TOKEN
    await b.put("one", None)
    await a.refresh("one")
    assert (a.get("one"), a.get("one/spec")) == (None, OTHER)
    await a.put("one", OTHER)
    assert (await fleet.vault("c")).all() == {"one": OTHER, "one/spec": OTHER}


async def test_the_table_and_the_names_of_its_rows_show_nothing_secret(fleet: Fleet):
    vault = await fleet.vault()
    await vault.put("one", TOKEN)
    row = await fleet.row("one")
    assert (row["kind"], row["key_id"]) == ("oauth", keys(OLD).first.id)
    assert b"s3cr3t" not in b"".join(part for part in row.values() if isinstance(part, bytes))
    assert "s3cr3t" not in repr(row)


async def test_members_that_start_at_once_make_one_vault(fleet: Fleet):
    vaults = await asyncio.gather(*(fleet.vault(member) for member in "abcabc"))
    await vaults[0].put("one", TOKEN)
    for vault in vaults:
        await vault.refresh("one")
        assert vault.get("one") == TOKEN


@pytest.mark.parametrize("mine", [OTHER, None], ids=["write", "delete"])
@pytest.mark.parametrize("theirs", [OTHER, None], ids=["written", "deleted"])
async def test_who_does_not_know_what_is_there_writes_nothing_over_it(fleet: Fleet, mine: Any, theirs: Any):
    a = await fleet.vault("a")
    await a.put("one", TOKEN)
    b = await fleet.vault("b")
    await a.put("one", theirs)
    if mine == theirs is None:
        await b.put("one", None)  # it is what both want
    else:
        with pytest.raises(Overtaken, match="another member has written them since"):
            await b.put("one", mine)
        await b.refresh("one")
        assert b.get("one") == theirs
        await b.put("one", mine)
    assert b.get("one") == mine
    await a.refresh("one")
    assert a.get("one") == mine


async def test_what_one_does_not_know_of_is_not_deleted(fleet: Fleet):
    a, b = await fleet.vault("a"), await fleet.vault("b")
    await a.put("one", TOKEN)
    for mine in (OTHER, None):
        with pytest.raises(Overtaken):
            await b.put("one", mine)
    await a.refresh("one")
    assert a.get("one") == TOKEN


async def test_a_refused_deletion_does_not_make_the_next_one_ones_own(fleet: Fleet):
    a = await fleet.vault("a")
    await a.put("one", TOKEN)
    b = await fleet.vault("b")
    await a.put("one", OTHER)
    with pytest.raises(Overtaken):
        await b.put("one", None)
    await a.put("one", None)
    with pytest.raises(Overtaken):
        await b.put("one", TOKEN)


async def test_of_many_members_that_write_at_once_one_does(fleet: Fleet):
    vaults = [await fleet.vault(member) for member in "abc"]
    last: Any = None
    for number in range(20):
        wanted = [{"by": member, "number": number} for member in "abc"]
        done = await asyncio.gather(
            *(vault.put("one", each) for vault, each in zip(vaults, wanted, strict=True)), return_exceptions=True
        )
        assert sorted(map(type, done), key=str) == sorted([Overtaken, Overtaken, type(None)], key=str)
        last = wanted[done.index(None)]
        for vault in vaults:
            await vault.refresh("one")
            assert vault.get("one") == last


@pytest.mark.parametrize(
    "gone", ["standing = 'gone'", "life = 2", "name = 'z'"], ids=["expelled", "a newer life", "no row"]
)
async def test_a_member_that_is_gone_writes_nothing(fleet: Fleet, gone: str):
    vault = await fleet.vault()
    await vault.put("one", TOKEN)
    await fleet.ask(f"UPDATE {{schema}}.members SET {gone} WHERE name = 'a'")
    for write in (vault.put("one", OTHER), vault.put("one", None), vault.put("two", OTHER)):
        with pytest.raises(Overtaken, match="this member is gone"):
            await write
    with pytest.raises(StoreError, match="or this member is gone"):
        await vault.put_all({"three": OTHER})
    assert (await fleet.vault("b")).all() == {"one": TOKEN}


async def test_a_draining_member_still_writes(fleet: Fleet):
    vault = await fleet.vault()
    await fleet.ask("UPDATE {schema}.members SET standing = 'draining'")
    await vault.put("one", TOKEN)


async def test_nobody_expels_a_member_in_the_middle_of_its_write(fleet: Fleet):
    """A write that waits keeps its member from being expelled. So it is there before another member reads."""
    vault = await fleet.vault()
    await vault.put("one", TOKEN)
    other: Any = await asyncpg.connect(fleet.server.url)
    try:
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            async with other.transaction():
                await other.execute(f"SELECT FROM {fleet.schema}.vault WHERE name = 'one' FOR UPDATE")
                write = group.create_task(vault.put("one", OTHER))
                await waiting(fleet, 1)
                expelling = group.create_task(fleet.expel("a"))
                await waiting(fleet, 2)
                assert not expelling.done()
            await write
    finally:
        await other.close()
    assert (await fleet.vault("b")).get("one") == OTHER


async def waiting(fleet: Fleet, number: int) -> None:
    """Return once so many statements about this fleet wait for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1"
    while (await fleet.ask(query, f"%{fleet.schema}%"))[0][0] < number:
        await asyncio.sleep(0.01)
