"""The audit log: durable with what it tells of, bounded whatever is refused, and kept over a restart."""

from collections import Counter
from contextlib import suppress

import anyio
import pytest

from hubbubd.core.audit import AuditEntry, AuditFilter, AuditKind, FairRetention
from hubbubd.errors import HubError, Unavailable, UnknownOutcome
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import Attempt
from hubbubd.runtime.oversight.audit import REFUSALS_PER_MINUTE

from .conftest import World, server, settle
from .foreign import Late

ATTEMPT = Attempt(principal="ada", credential="token:1", peer="loopback", action="DisconnectServer", target="one")
EVERYTHING = AuditFilter()


def entries(hub: Hub, kind: AuditKind | None = None) -> list[AuditEntry]:
    """What is in the log, oldest first."""
    found = [entry for entry in hub.audit.select(EVERYTHING) if kind in (None, entry.kind)]
    return sorted(found, key=lambda entry: entry.created_at)


async def test_a_change_and_its_entry_are_in_one_commit(world: World) -> None:
    async with world.hub(server()) as hub:
        await settle()
        before = len(world.store.commits)
        with hub.audit.record_change(ATTEMPT):
            await hub.servers.disconnect("one")
        with_entry = [commit for commit in world.store.commits[before:] if any("audit/" in w.key for w in commit)]
        assert len(with_entry) == 1
        assert {write.key.partition("/")[0] for write in with_entry[0]} == {"server", "audit"}
        (entry,) = entries(hub)
        assert (entry.principal, entry.target, entry.outcome, entry.kind) == ("ada", "one", "OK", AuditKind.CHANGE)


async def test_a_change_that_the_store_refuses_is_counted_as_refused(world: World) -> None:
    async with world.hub(server()) as hub:
        await settle()
        world.store.failures = 1
        with pytest.raises(Unavailable), hub.audit.record_change(ATTEMPT):
            await hub.servers.disconnect("one")
        (entry,) = entries(hub)
        assert (entry.kind, entry.outcome, entry.count) == (AuditKind.REFUSAL, "STORE_UNAVAILABLE", 1)


async def test_what_fails_after_its_commit_says_so(world: World) -> None:
    async with world.hub(server()) as hub:

        async def fail_late() -> None:
            with hub.audit.record_change(ATTEMPT):
                await hub.servers.disconnect("one")
                raise HubError("too late", reason="TOO_LATE")

        with pytest.raises(HubError):
            await fail_late()
        (entry,) = entries(hub)
        assert (entry.kind, entry.outcome) == (AuditKind.CHANGE, "TOO_LATE")


async def test_who_hangs_up_after_the_commit_has_made_the_change(world: World) -> None:
    async with world.hub(server()) as hub:
        with anyio.CancelScope() as scope, hub.audit.record_change(ATTEMPT):
            await hub.servers.disconnect("one")
            scope.cancel()
            await anyio.sleep_forever()
        (entry,) = entries(hub)
        assert (entry.kind, entry.outcome) == (AuditKind.CHANGE, "OK")


async def test_a_change_that_goes_on_without_its_caller_has_its_entry(world: World) -> None:
    async with world.hub(server()) as hub:
        world.store.delay_s = 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.servers.connect, "one")
            await settle()
            with anyio.move_on_after(0.1), hub.audit.record_change(ATTEMPT):
                await hub.servers.disconnect("one")  # waits for its turn
        await settle(5)
        assert not hub.servers.get("one").wanted
        assert [(entry.kind, entry.outcome) for entry in entries(hub, AuditKind.CHANGE)] == [(AuditKind.CHANGE, "OK")]
        assert entries(hub, AuditKind.REFUSAL) == []


@pytest.mark.parametrize("happens", ["at once", "later", "never"])
async def test_what_goes_on_after_a_commit_of_unknown_outcome_has_one_entry(world: World, happens: str) -> None:
    world.store = store = Late(world.store.inner)
    async with world.hub(server()) as hub:
        await settle()
        store.unsure, store.happens = True, happens == "at once"
        with hub.audit.record_change(ATTEMPT):
            with pytest.raises(UnknownOutcome):
                await hub.servers.disconnect("one")
            if happens == "later":
                await store.soon()
            await hub.servers.connect("one")
        await settle()
        assert [(entry.kind, entry.outcome) for entry in entries(hub)] == [(AuditKind.CHANGE, "OK")]
        assert len((await store.snapshot("audit/")).entries) == 1


async def test_a_refusal_stays_when_what_had_begun_goes_on(world: World) -> None:
    async with world.hub(server()) as hub:

        async def goes_on() -> None:
            with hub.audit.record_change(ATTEMPT):
                tasks.start_soon(later)
                raise HubError("no", reason="TOO_LATE")

        async def later() -> None:
            await anyio.sleep(1)
            await hub.servers.disconnect("one")

        async with anyio.create_task_group() as tasks:
            with pytest.raises(HubError):
                await goes_on()
        await settle()
        assert [(entry.kind, entry.outcome) for entry in entries(hub)] == [(AuditKind.REFUSAL, "TOO_LATE")]


@pytest.mark.parametrize("unsure", [False, True], ids=["known", "unknown"])
async def test_a_caller_who_hung_up_is_taken_back_once_however_many_commits_follow(world: World, unsure: bool) -> None:
    world.store = store = Late(world.store.inner)

    async def many(hub: Hub) -> None:
        await anyio.sleep(1)
        store.unsure = store.happens = unsure
        with suppress(UnknownOutcome):
            await hub.servers.disconnect("one")
        await hub.servers.connect("one")
        await hub.servers.disconnect("one")

    async with world.hub(server()) as hub:
        for _ in range(3):
            with anyio.CancelScope() as scope, hub.audit.record_change(ATTEMPT):
                scope.cancel()
                await anyio.sleep_forever()
        async with anyio.create_task_group() as tasks:
            with anyio.move_on_after(0.1), hub.audit.record_change(ATTEMPT):
                tasks.start_soon(many, hub)
                await anyio.sleep_forever()
        await settle()
        assert [entry.count for entry in entries(hub, AuditKind.REFUSAL)] == [3]
        assert [entry.outcome for entry in entries(hub, AuditKind.CHANGE)] == ["OK"]


async def test_what_the_hub_commits_after_an_rpc_has_no_entry(world: World) -> None:
    async with world.hub(server()) as hub:
        with hub.audit.record_change(ATTEMPT):
            await hub.servers.disconnect("one")
        await hub.servers.connect("one")
        assert len(entries(hub)) == 1


async def test_equal_refusals_of_a_minute_are_one_entry_with_their_number(world: World) -> None:
    async with world.hub() as hub:
        for _ in range(1000):
            hub.audit.record_refusal(ATTEMPT, "PERMISSION_DENIED")
        await anyio.sleep(61)
        hub.audit.record_refusal(ATTEMPT, "PERMISSION_DENIED")
        await settle()
        assert [entry.count for entry in entries(hub)] == [1000, 1]


async def test_a_flood_of_different_refusals_is_bounded_and_none_is_lost(world: World) -> None:
    async with world.hub() as hub:
        for number in range(10 * REFUSALS_PER_MINUTE):
            hub.audit.record_refusal(Attempt(principal=f"p{number}", action="GetCall"), "PERMISSION_DENIED")
        found = entries(hub)
        assert len(found) == REFUSALS_PER_MINUTE + 1
        assert sum(entry.count for entry in found) == 10 * REFUSALS_PER_MINUTE
        assert next(entry.count for entry in found if entry.principal == "*") == 9 * REFUSALS_PER_MINUTE


async def test_neither_refusals_nor_answers_push_out_changes(world: World) -> None:
    world.settings["audit_history_count"] = 5
    async with world.hub() as hub:
        hub.audit.note("TakeOverServer", "one")
        for number in range(50):
            hub.audit.record_refusal(Attempt(principal=f"p{number}", action="GetCall"), "PERMISSION_DENIED")
            hub.audit.record_start(
                Attempt(principal="ada", action="AnswerPendingRequest", target=str(number)), AuditKind.ANSWER
            )
        await settle()
        assert len(entries(hub, AuditKind.CHANGE)) == 1
        assert [entry.target for entry in entries(hub, AuditKind.ANSWER)] == ["45", "46", "47", "48", "49"]
        assert len(entries(hub, AuditKind.REFUSAL)) == 5


def test_an_entry_is_kept_until_it_is_older_than_the_age() -> None:
    entry = AuditEntry(id="a", kind=AuditKind.CHANGE, created_at=100.0, principal="ada", action="RemoveServer")
    kept = FairRetention(10)
    kept.add(entry)
    assert kept.expire(100.0) == []
    assert kept.expire(100.1) == ["a"]


async def test_nobody_pushes_out_of_the_log_what_others_did(world: World) -> None:
    world.settings["audit_history_count"] = 16

    def changes(hub: Hub, credential: str, count: int, principal: str = "") -> None:
        for number in range(count):
            name = principal or f"person {number}"
            hub.audit.record_start(
                Attempt(principal=name, credential=credential, action="CancelCall", target=str(number))
            )

    def left(hub: Hub) -> Counter[str]:
        return Counter(entry.holder for entry in entries(hub, AuditKind.CHANGE))

    async with world.hub() as hub:
        changes(hub, "token:admin", 3, "ada")
        await anyio.sleep(1)
        changes(hub, "token:flood", 1000)  # under as many names as it likes
        changes(hub, "jwt", 1000, "oidc:flood")
        for _ in range(1000):
            hub.audit.note("ThrottleServer", "one")
        changes(hub, "jwt", 2, "oidc:quiet")
        await settle()
        kept = left(hub)
        assert kept["token:admin"] == 3
        assert kept["oidc:quiet"] == 2
        assert (kept.total(), len(kept)) == (16, 5)
        flood = [entry.target for entry in entries(hub) if entry.credential == "token:flood"]
        assert flood == [str(number) for number in range(1000 - len(flood), 1000)]
    async with world.hub() as hub:
        assert left(hub) == kept


async def test_where_nobody_has_many_entries_the_oldest_goes(world: World) -> None:
    world.settings["audit_history_count"] = 16
    async with world.hub() as hub:
        for number in range(40):
            hub.audit.record_start(
                Attempt(principal=f"p{number % 20}", credential=f"token:{number % 20}", action="CancelCall")
            )
            await anyio.sleep(1)
        assert [entry.principal for entry in entries(hub)] == [f"p{number % 20}" for number in range(24, 40)]


async def test_the_log_outlives_the_hub_and_ends_with_its_age(world: World) -> None:
    world.settings["audit_history_age_s"] = 3600
    async with world.hub() as hub:
        hub.audit.note("TakeOverServer", "one")
    async with world.hub() as hub:
        (entry,) = entries(hub)
        assert (entry.principal, entry.action, entry.target) == ("hub", "TakeOverServer", "one")
        await anyio.sleep(3700)
        await hub.retention.run_round()
        assert entries(hub) == []


async def test_a_file_that_takes_over_a_server_is_in_the_log(world: World) -> None:
    async with world.hub() as hub:
        await hub.servers.add(server())
    async with world.hub(server()) as hub:
        assert [(e.action, e.target) for e in entries(hub)] == [("TakeOverServer", "one")]
