"""The vault of a fleet where the database, the way to it or a member fails."""

import asyncio
import base64
import gc
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import asyncpg
import pytest

from hubbubd.errors import Overtaken, VaultError
from hubbubd.store.postgres.vault import KnownRow, PostgresVault

from ..postgres import Proxy
from .vaults import LIMIT_S, OLD, OTHER, TOKEN, Fleet


async def test_those_who_wait_for_their_turn_give_up_together(fleet: Fleet):
    vault = await fleet.vault(timeout_s=1.0)
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


@pytest.mark.parametrize("before", [TOKEN, None], ids=["over one", "the first"])
@pytest.mark.parametrize("value", [OTHER, None], ids=["written", "deleted"])
async def test_a_write_that_was_given_up_is_known_as_ones_own_later(fleet: Fleet, before: Any, value: Any):
    vault = await fleet.vault(timeout_s=1.0)
    await vault.put("one", before)
    await given_up(fleet, vault, value)
    assert vault.get("one") == before
    assert (await fleet.vault("b")).get("one") == value
    await vault.put("one", {"after": value})
    assert (await fleet.vault("b")).get("one") == {"after": value}


async def test_a_write_over_one_that_was_given_up_and_overtaken_is_refused(fleet: Fleet):
    vault = await fleet.vault(timeout_s=1.0)
    await vault.put("one", TOKEN)
    await given_up(fleet, vault, OTHER)
    await (await fleet.vault("b")).put("one", TOKEN)
    with pytest.raises(Overtaken, match="another member has written"):
        await vault.put("one", OTHER)


async def test_what_was_given_up_does_not_count_for_a_member_that_is_gone(fleet: Fleet):
    vault = await fleet.vault(timeout_s=1.0)
    await given_up(fleet, vault, TOKEN)
    await fleet.expel("a")
    with pytest.raises(Overtaken, match="this member is gone"):
        await vault.put("one", OTHER)


async def given_up(fleet: Fleet, vault: PostgresVault, value: Any) -> None:
    """Write what the database carries out only when nobody waits for it any more."""
    other: Any = await asyncpg.connect(fleet.server.url)
    try:
        async with other.transaction():
            await other.execute(f"LOCK {fleet.schema}.vault IN EXCLUSIVE MODE")
            with pytest.raises(VaultError, match=r"has not answered for 1 s"):
                await vault.put("one", value)
    finally:
        await other.close()
    at_work = """SELECT count(*) FROM pg_stat_activity
        WHERE state = 'active' AND query LIKE $1 AND pid <> pg_backend_pid()"""
    async with asyncio.timeout(LIMIT_S):
        while (await fleet.ask(at_work, f"%{fleet.schema}%"))[0][0]:
            await asyncio.sleep(0.01)


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
from hubbubd.config.sections.store import StoreSettings
from hubbubd.store.postgres.vault import PostgresVault
from hubbubd.store.vault.encryption import VaultKey
from hubbubd.store.vault.keys import VaultKeys

async def main(url, schema):
    keys = VaultKeys((VaultKey.with_id(b"o" * 32),), "vault.key")
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
        assert kept["number"] in (last, last + 1)
        last = kept["number"]


async def test_a_database_that_is_away_is_said_in_time_and_used_again(fleet: Fleet):
    if fleet.server.data is None:
        pytest.skip("HUBBUB_TEST_PG names a server that tests may not stop")
    vault = await fleet.vault(timeout_s=0.5)
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


async def test_no_secret_is_in_what_the_database_logs_or_says(fleet: Fleet, caplog: pytest.LogCaptureFixture):
    """Statements have sealed rows only, so that neither an error nor the database's own log has more."""
    vault = await fleet.vault()
    await fleet.ask("ALTER TABLE {schema}.vault ADD CONSTRAINT full_up CHECK (name <> 'one')")
    with pytest.raises(VaultError) as refused:
        await vault.put("one", TOKEN)
    said = str(refused.value) + repr(refused.value.__cause__) + caplog.text
    assert "s3cr3t" not in said
    assert base64.b64encode(OLD).decode() not in said


def test_what_a_member_knows_of_a_row_is_shown_without_its_secrets():
    assert "s3cr3t" not in repr(KnownRow(1, TOKEN))
