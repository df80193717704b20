"""The vault of a fleet: another key for all its rows, and its secrets carried elsewhere."""

import asyncio
from pathlib import Path

import pytest

from hubbubd.errors import Overtaken, VaultError
from hubbubd.store import StoreError
from hubbubd.store.postgres.vault import SLICE_ROWS, RotationProgress
from hubbubd.store.vault.file import TokenFile

from ..postgres import Proxy
from .vaults import LIMIT_S, NEW, OLD, OTHER, TOKEN, Fleet, keys


async def test_after_a_rotation_the_old_key_is_not_needed_and_owners_write_on(fleet: Fleet):
    a, b = await fleet.vault("a", keys(NEW, OLD)), await fleet.vault("b", keys(OLD, NEW))
    for number in range(5):
        await b.put(f"s{number}", {"number": number})
    before = await fleet.row("s0")
    assert await a.rotate() == RotationProgress(5, 5)
    after = await fleet.row("s0")
    assert (after["version"], after["sealed"]) == (before["version"], before["sealed"])
    assert after["wrapped"] != before["wrapped"]
    await b.put("s0", OTHER)  # by who still seals with the old key
    assert await a.rotate() == RotationProgress(5, 5)
    assert (await fleet.vault("c", keys(NEW))).all() == {"s0": OTHER, **{f"s{n}": {"number": n} for n in range(1, 5)}}


async def test_a_rotation_that_was_interrupted_goes_on_where_it_was(fleet: Fleet):
    many = {f"s{number:03}": {"number": number} for number in range(2 * SLICE_ROWS + 5)}
    await (await fleet.vault(None)).put_all(many)
    vault = await fleet.vault("a", keys(NEW, OLD))
    done = "SELECT count(*) FROM {schema}.vault WHERE key_id = $1"
    async with asyncio.timeout(LIMIT_S):
        rotation = asyncio.create_task(vault.rotate())
        while not (await fleet.ask(done, keys(NEW).first.id))[0][0]:
            await asyncio.sleep(0)
        rotation.cancel()
        await asyncio.wait([rotation])
    [(before,)] = await fleet.ask(done, keys(NEW).first.id)
    assert before % SLICE_ROWS in (0, 5)
    sealed = dict(await fleet.ask("SELECT name, wrapped FROM {schema}.vault WHERE key_id = $1", keys(NEW).first.id))
    assert (await fleet.vault("b", keys(OLD, NEW))).all() == many
    assert await vault.rotate() == RotationProgress(len(many), len(many))
    again = dict(await fleet.ask("SELECT name, wrapped FROM {schema}.vault"))
    assert {name: again[name] for name in sealed} == sealed
    assert (await fleet.vault("b", keys(NEW))).all() == many


async def test_two_rotations_at_once_both_end_with_all_rows_sealed_anew(fleet: Fleet):
    many = {f"s{number:03}": {"number": number} for number in range(3 * SLICE_ROWS)}
    await (await fleet.vault(None)).put_all(many)
    both = [await fleet.vault(name, keys(NEW, OLD)) for name in "ab"]
    owner = await fleet.vault("c", keys(OLD, NEW))
    renewed = [f"s{number:03}" for number in range(0, len(many), 50)]
    async with asyncio.timeout(LIMIT_S):
        *_, first, second = await asyncio.gather(
            *(owner.put(f"s{number:03}", OTHER) for number in range(0, 3 * SLICE_ROWS, 50)),
            *(each.rotate() for each in both),
        )
    assert first.all == second.all == len(many)
    await both[0].rotate()
    found = (await fleet.vault("b", keys(NEW))).all()
    assert found == {**many, **dict.fromkeys(renewed, OTHER)}


async def test_a_rotation_over_a_way_that_breaks_ends(fleet: Fleet):
    many = {f"s{number:03}": {"number": number} for number in range(SLICE_ROWS + 5)}
    await (await fleet.vault(None)).put_all(many)
    async with Proxy(fleet.server) as way:
        vault = await fleet.vault("a", keys(NEW, OLD), url=way.url)
        way.eaten = 3
        assert await vault.rotate() == RotationProgress(len(many), len(many))
        assert way.cut == 3
        await vault.close()
    assert (await fleet.vault("b", keys(NEW))).all() == many


async def test_a_rotation_by_a_gone_member_or_over_damage_changes_nothing(fleet: Fleet):
    vault = await fleet.vault("a", keys(NEW, OLD))
    await (await fleet.vault("b")).put("one", TOKEN)
    await fleet.ask("UPDATE {schema}.vault SET sealed = '\\x00'")
    with pytest.raises(VaultError, match=r"one \(oauth\) .* cannot be opened"):
        await vault.rotate()
    await fleet.ask("DELETE FROM {schema}.vault")
    b = await fleet.vault("b")
    await b.put("one", TOKEN)
    await fleet.expel("a")
    with pytest.raises(Overtaken, match="this member is gone"):
        await vault.rotate()
    assert (await fleet.row("one"))["key_id"] == keys(OLD).first.id


async def test_all_secrets_are_carried_over_from_a_file_and_back(fleet: Fleet, tmp_path: Path):
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    file = TokenFile.open(tmp_path / "from")
    await file.put("one", TOKEN)
    await file.put("one/spec", OTHER)
    vault = await fleet.vault(None)
    await vault.put_all({})
    await vault.put_all(file.all())
    assert vault.all() == file.all() == {"one": TOKEN, "one/spec": OTHER}
    await vault.put("two", TOKEN)
    back = TokenFile.open(tmp_path / "to")
    await back.put_all((await fleet.vault(None)).all())
    assert TokenFile.open(tmp_path / "to").all() == {"one": TOKEN, "one/spec": OTHER, "two": TOKEN}
    for full in (vault, back):
        with pytest.raises(StoreError, match="has secrets already"):
            await full.put_all({"three": TOKEN})
    assert "three" not in (await fleet.vault(None)).all()


async def test_secrets_that_are_carried_over_are_all_there_although_the_answer_was_lost(fleet: Fleet):
    many = {f"s{number}": {"number": number} for number in range(300)}
    async with Proxy(fleet.server) as way:
        vault = await fleet.vault(None, url=way.url)
        way.eaten = 3
        await vault.put_all(many)
        assert way.cut == 3
        await vault.close()
    assert (await fleet.vault("b")).all() == many
