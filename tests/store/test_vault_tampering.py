"""The vault of a fleet, when somebody changes the database behind it, or a key is missing."""

from typing import Any

import pytest

from hubbubd.errors import ConfigError, Overtaken, VaultError
from hubbubd.store import StoreError
from hubbubd.store.postgres.vault_sql import CONTENT_BYTES

from .vaults import NEW, OLD, OTHER, TOKEN, Fleet, keys


@pytest.mark.parametrize("part", ["whole", "sealed", "wrapped"])
async def test_rows_that_were_swapped_are_found(fleet: Fleet, part: str):
    vault = await fleet.vault()
    await vault.put("one", TOKEN)
    await vault.put("two", OTHER)
    one, two = await fleet.row("one"), await fleet.row("two")
    swapped = [part] if part != "whole" else ["version", "key_id", "wrapped", "sealed"]
    await fleet.put_back(two | {each: one[each] for each in swapped})
    with pytest.raises(VaultError, match=r"the rows of two \(oauth\) in the vault .* cannot be opened"):
        await vault.refresh("two")
    assert vault.get("two") == OTHER
    with pytest.raises(StoreError, match=r"the rows of two \(oauth\) .* put them back from a backup, or delete them"):
        await fleet.vault("b")


async def test_a_row_of_the_other_kind_is_found(fleet: Fleet):
    vault = await fleet.vault()
    await vault.put("one", TOKEN)
    await fleet.ask("UPDATE {schema}.vault SET kind = 'spec'")
    with pytest.raises(VaultError, match=r"one \(spec\) .* cannot be opened"):
        await vault.refresh("one")


async def test_an_old_content_is_found_under_the_new_version_by_everybody(fleet: Fleet):
    vault = await fleet.vault()
    await vault.put("one", TOKEN)
    before = await fleet.row("one")
    await vault.put("one", OTHER)
    await fleet.put_back({**before, "version": (await fleet.row("one"))["version"]})
    with pytest.raises(VaultError, match="cannot be opened"):
        await vault.refresh("one")
    with pytest.raises(StoreError, match="cannot be opened"):
        await fleet.vault("b")


@pytest.mark.parametrize("then", [OTHER, None], ids=["renewed", "deleted"])
async def test_an_old_row_that_was_put_back_is_found_by_who_knows_a_newer_one(fleet: Fleet, then: Any):
    vault = await fleet.vault()
    await vault.put("one", TOKEN)
    before = await fleet.row("one")
    await vault.put("one", OTHER)
    await vault.put("one", then)
    await fleet.ask("DELETE FROM {schema}.vault")
    await fleet.ask("INSERT INTO {schema}.vault SELECT $1, $2, $3, $4, $5, $6", *before.values())
    with pytest.raises(VaultError, match=r"one \(oauth\) .* was put back: it has version 1, and this member knows"):
        await vault.refresh("one")
    assert vault.get("one") == then
    with pytest.raises(Overtaken):
        await vault.put("one", TOKEN)


async def test_an_old_row_that_is_put_back_after_another_member_deleted_it_is_found(fleet: Fleet):
    vault = await fleet.vault()
    await vault.put("one", TOKEN)
    before = await fleet.row("one")
    await (await fleet.vault("b")).put("one", OTHER)
    await vault.refresh("one")
    await (await fleet.vault("c")).put("one", None)
    await vault.refresh("one")
    assert vault.get("one") is None
    await fleet.ask("INSERT INTO {schema}.vault SELECT $1, $2, $3, $4, $5, $6", *before.values())
    with pytest.raises(VaultError, match="was put back"):
        await vault.refresh("one")


async def test_a_row_that_is_too_long_is_not_read(fleet: Fleet):
    vault = await fleet.vault()
    await vault.put("one", TOKEN)
    await fleet.ask("UPDATE {schema}.vault SET sealed = sealed || decode(repeat('00', $1), 'hex')", 2 * CONTENT_BYTES)
    with pytest.raises(VaultError, match="cannot be opened"):
        await vault.refresh("one")
    with pytest.raises(StoreError, match="cannot be opened"):
        await fleet.vault("b")
    with pytest.raises(VaultError, match=r"the secrets of two have .* bytes; at most"):
        await vault.put("two", {"token": "x" * CONTENT_BYTES})


async def test_a_key_that_is_not_known_stops_the_start_and_is_named(fleet: Fleet):
    vault = await fleet.vault()
    for number in range(7):
        await vault.put(f"s{number}", TOKEN)
    with pytest.raises(ConfigError) as refused:
        await fleet.vault("b", keys(NEW))
    assert refused.value.key == "fleet.vault_key_file"
    said, id_ = str(refused.value), keys(OLD).first.id
    assert "s0 (oauth)" in said
    assert "s4 (oauth) and 2 more" in said
    assert f"sealed with the key {id_}, which is not in vault.key; that has {keys(NEW).first.id}" in said
    assert (await fleet.vault("b", keys(NEW, OLD))).get("s6") == TOKEN
    await fleet.ask(said.split("`")[1])
    assert (await fleet.vault("b", keys(NEW))).all() == {}


async def test_a_key_that_comes_up_while_the_member_runs_is_named(fleet: Fleet):
    a, b = await fleet.vault("a", keys(NEW)), await fleet.vault("b")
    await a.put("one", TOKEN)
    with pytest.raises(VaultError, match=f"sealed with the key {keys(NEW).first.id}, .* restart this member"):
        await b.refresh("one")


async def test_a_key_id_that_is_none_is_damage_and_not_repeated(fleet: Fleet):
    vault = await fleet.vault()
    await vault.put("one", TOKEN)
    await fleet.ask("UPDATE {schema}.vault SET key_id = '''; DROP TABLE x'")
    with pytest.raises(StoreError, match="cannot be opened") as refused:
        await fleet.vault("b")
    assert "DROP" not in str(refused.value)


async def test_the_vault_of_another_fleet_with_the_same_key_is_no_use(fleet: Fleet):
    vault = await fleet.vault()
    await vault.put("one", TOKEN)
    await fleet.ask("UPDATE {schema}.vault_meta SET id = 'another'")
    with pytest.raises(StoreError, match="cannot be opened"):
        await fleet.vault("b")
