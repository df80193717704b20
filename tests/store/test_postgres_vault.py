"""The vault of a fleet: several members, a database that is changed behind them, and ways that break."""

import asyncio
import base64
import gc
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest
from pydantic import SecretStr

from hubbubd.config.store import StoreSettings
from hubbubd.errors import ConfigError, Overtaken, VaultError
from hubbubd.store import StoreError
from hubbubd.store.postgres_vault import SLICE, PostgresVault, Rotated
from hubbubd.store.sealing import VaultKey
from hubbubd.store.vault import TokenFile
from hubbubd.store.vault_keys import VaultKeys
from hubbubd.store.vault_sql import CONTENT_BYTES

from ..postgres import Postgres, Proxy

LIMIT_S = 60
TOKEN = {"tokens": {"access_token": "s3cr3t-access"}, "expires_at": 1.5, "issuer": None}
OTHER = {"tokens": {"access_token": "s3cr3t-renewed"}}


def keys(*secret: bytes) -> VaultKeys:
    return VaultKeys(tuple(VaultKey.of(each) for each in secret), "vault.key")


OLD, NEW = b"o" * 32, b"n" * 32


@dataclass
class Fleet:
    """The database of a fleet whose members all have taken their place: a, b and c, each in its first life."""

    server: Postgres
    schema: str
    opened: list[PostgresVault]

    async def ask(self, query: str, *words: Any) -> list[Any]:
        link: Any = await asyncpg.connect(self.server.url)
        try:
            return await link.fetch(query.replace("{schema}", self.schema), *words)
        finally:
            await link.close()

    async def vault(
        self, member: str | None = "a", of: VaultKeys | None = None, url: str | None = None, patience_s: float = LIMIT_S
    ) -> PostgresVault:
        settings = StoreSettings(
            url=SecretStr(url or self.server.url), schema_name=self.schema, unavailable_after_s=patience_s
        )
        vault = await PostgresVault.open(settings, of or keys(OLD), member, None if member is None else 1)
        self.opened.append(vault)
        return vault

    async def row(self, name: str) -> dict[str, Any]:
        [row] = await self.ask("SELECT * FROM {schema}.vault WHERE name = $1", name)
        return dict(row)

    async def put_back(self, row: dict[str, Any]) -> None:
        """Put parts of a row in place of what is there now, as the database's administrator can."""
        parts = [part for part in row if part not in ("name", "kind")]
        changes = ", ".join(f"{part} = ${number}" for number, part in enumerate(parts, 3))
        change = f"UPDATE {{schema}}.vault SET {changes} WHERE name = $1 AND kind = $2"
        await self.ask(change, row["name"], row["kind"], *(row[part] for part in parts))

    async def expel(self, member: str) -> None:
        await self.ask("UPDATE {schema}.members SET standing = 'gone' WHERE name = $1", member)


@pytest.fixture
async def fleet(postgres: Postgres) -> AsyncIterator[Fleet]:
    fleet = Fleet(postgres, f"t{secrets.token_hex(8)}", [])
    await fleet.ask("CREATE SCHEMA {schema}")
    await fleet.ask("CREATE TABLE {schema}.members (name text PRIMARY KEY, life bigint, standing text)")
    await fleet.ask("INSERT INTO {schema}.members SELECT unnest($1::text[]), 1, 'live'", ["a", "b", "c"])
    yield fleet
    for vault in fleet.opened:
        await vault.close()


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


async def test_those_who_wait_for_their_turn_give_up_together(fleet: Fleet):
    vault = await fleet.vault(patience_s=0.3)
    other: Any = await asyncpg.connect(fleet.server.url)
    try:
        async with other.transaction():
            await other.execute(f"LOCK {fleet.schema}.vault IN EXCLUSIVE MODE")
            async with asyncio.timeout(LIMIT_S):
                puts = (vault.put(f"s{number}", TOKEN) for number in range(1000))
                done = await asyncio.gather(*puts, return_exceptions=True)
    finally:
        await other.close()
    assert {type(each) for each in done} == {VaultError}


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


async def test_a_write_whose_answer_was_lost_happens_once(fleet: Fleet):
    async with Proxy(fleet.server) as way:
        vault = await fleet.vault(url=way.url)
        for number in range(24):
            way.eaten = (1, 2, 3, 0)[number % 4]
            value = None if number % 7 == 6 else {"number": number}
            await vault.put("one", value)
            way.eaten = 0
            await vault.refresh("one")
            assert vault.get("one") == value
        assert way.cut >= 18
        await vault.close()


async def test_a_write_that_was_given_up_is_known_as_ones_own_later(fleet: Fleet):
    vault = await fleet.vault(patience_s=0.3)
    await vault.put("one", TOKEN)
    for value in (OTHER, None, TOKEN):
        async with Proxy(fleet.server) as way:
            cut_off = await fleet.vault("a", url=way.url, patience_s=0.3)
            with pytest.raises(VaultError, match=r"has not answered for 0.3 s"):
                await given_up(cut_off, way, value)
            await cut_off.put("one", {"after": value})
            assert (await fleet.vault("b")).get("one") == {"after": value}
            await cut_off.close()


async def given_up(vault: PostgresVault, way: Proxy, value: Any) -> None:
    """Write over a way that breaks again and again, until the time is over."""

    async def keep_breaking() -> None:
        while True:
            way.eaten = 1
            await asyncio.sleep(0)

    breaking = asyncio.create_task(keep_breaking())
    try:
        await vault.put("one", value)
    finally:
        breaking.cancel()
        way.eaten = 0


async def test_a_write_goes_on_when_whoever_waits_for_it_is_cancelled(fleet: Fleet):
    vault = await fleet.vault()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await vault.put("one", TOKEN)
    assert (await fleet.vault("b")).get("one") == TOKEN


async def test_a_reading_that_was_cancelled_breaks_nothing_and_leaves_nothing(fleet: Fleet):
    vault = await fleet.vault()
    await vault.put("one", TOKEN)
    for number in range(60):
        if number % 2:
            await vault.close()  # so that it is cancelled while it connects
        with anyio.move_on_after(number / 4000):
            await vault.refresh("one")
    await vault.put("one", OTHER)
    await vault.refresh("one")
    assert vault.get("one") == OTHER
    gc.collect()  # what nobody took would be said now, and fail this test


CHILD = """
import asyncio, sys
from pydantic import SecretStr
from hubbubd.config.store import StoreSettings
from hubbubd.store.postgres_vault import PostgresVault
from hubbubd.store.sealing import VaultKey
from hubbubd.store.vault_keys import VaultKeys

async def main(url, schema):
    keys = VaultKeys((VaultKey.of(b"o" * 32),), "vault.key")
    vault = await PostgresVault.open(StoreSettings(url=SecretStr(url), schema_name=schema), keys, "a", 1)
    number = (vault.get("one") or {"number": 0})["number"]
    while True:
        number += 1
        await vault.put("one", {"number": number, "token": "x" * 5000})
        print(number, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_kill_in_the_middle_of_a_write_leaves_the_last_one_or_the_one_before(fleet: Fleet):
    last = 0
    for kill in range(5):
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CHILD, fleet.server.url, fleet.schema), stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout
        async with asyncio.timeout(LIMIT_S):
            for _ in range(3 + kill):
                last = int(await child.stdout.readline())
            child.send_signal(signal.SIGKILL)
            for line in (await child.stdout.read()).splitlines():
                last = int(line)
            await child.wait()
        kept = (await fleet.vault("b")).get("one")
        assert kept is not None
        assert kept["number"] in (last, last + 1)
        last = kept["number"]


async def test_a_database_that_is_away_is_said_in_time_and_used_again(fleet: Fleet):
    if fleet.server.data is None:
        pytest.skip("HUBBUB_TEST_PG names a server that tests may not stop")
    vault = await fleet.vault(patience_s=0.5)
    await vault.put("one", TOKEN)
    fleet.server.stop()
    try:
        work: list[Callable[[], Awaitable[Any]]] = [
            lambda: vault.put("one", OTHER),
            lambda: vault.refresh("one"),
            vault.rotate,
        ]
        for each in work:
            with pytest.raises(VaultError, match=r"the vault .* has not answered for"):
                await each()
        assert vault.get("one") == TOKEN
    finally:
        fleet.server.start()
    await vault.put("one", OTHER)
    assert (await fleet.vault("b")).get("one") == OTHER


async def test_what_another_attempt_would_not_mend_is_said_at_once(fleet: Fleet):
    vault = await fleet.vault()
    await fleet.ask("DROP TABLE {schema}.vault_meta")
    with pytest.raises(VaultError, match="vault_meta"):
        await vault.put("one", TOKEN)
    await fleet.ask("DROP TABLE {schema}.vault")
    await fleet.vault("b")


async def test_after_a_rotation_the_old_key_is_not_needed_and_owners_write_on(fleet: Fleet):
    a, b = await fleet.vault("a", keys(NEW, OLD)), await fleet.vault("b", keys(OLD, NEW))
    for number in range(5):
        await b.put(f"s{number}", {"number": number})
    before = await fleet.row("s0")
    assert await a.rotate() == Rotated(5, 5)
    after = await fleet.row("s0")
    assert (after["version"], after["sealed"]) == (before["version"], before["sealed"])
    assert after["wrapped"] != before["wrapped"]
    await b.put("s0", OTHER)  # by who still seals with the old key
    assert await a.rotate() == Rotated(5, 5)
    assert (await fleet.vault("c", keys(NEW))).all() == {"s0": OTHER, **{f"s{n}": {"number": n} for n in range(1, 5)}}


async def test_a_rotation_that_was_interrupted_goes_on_where_it_was(fleet: Fleet):
    many = {f"s{number:03}": {"number": number} for number in range(2 * SLICE + 5)}
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
    assert before % SLICE in (0, 5)
    sealed = dict(await fleet.ask("SELECT name, wrapped FROM {schema}.vault WHERE key_id = $1", keys(NEW).first.id))
    assert (await fleet.vault("b", keys(OLD, NEW))).all() == many
    assert await vault.rotate() == Rotated(len(many), len(many))
    again = dict(await fleet.ask("SELECT name, wrapped FROM {schema}.vault"))
    assert {name: again[name] for name in sealed} == sealed
    assert (await fleet.vault("b", keys(NEW))).all() == many


async def test_a_rotation_over_a_way_that_breaks_ends(fleet: Fleet):
    many = {f"s{number:03}": {"number": number} for number in range(SLICE + 5)}
    await (await fleet.vault(None)).put_all(many)
    async with Proxy(fleet.server) as way:
        vault = await fleet.vault("a", keys(NEW, OLD), url=way.url)
        way.eaten = 3
        assert await vault.rotate() == Rotated(len(many), len(many))
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


async def test_no_secret_is_in_what_the_database_logs_or_says(fleet: Fleet, caplog: pytest.LogCaptureFixture):
    """Statements have sealed rows only, so that neither an error nor the database's own log has more."""
    vault = await fleet.vault()
    await fleet.ask("ALTER TABLE {schema}.vault ADD CONSTRAINT full_up CHECK (name <> 'one')")
    with pytest.raises(VaultError) as refused:
        await vault.put("one", TOKEN)
    said = str(refused.value) + repr(refused.value.__cause__) + caplog.text
    assert "s3cr3t" not in said
    assert base64.b64encode(OLD).decode() not in said
