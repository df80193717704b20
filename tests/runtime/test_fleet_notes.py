"""What the members of a fleet note in the audit log by themselves: who was declared gone, and what was lost."""

import pytest
from structlog.testing import capture_logs

from hubbubd.core.audit import AuditEntry, AuditFilter, AuditKind
from hubbubd.errors import UpstreamError
from hubbubd.members import MemberStatus
from hubbubd.store.membership import HistoryLost

from .conftest import settle, until
from .fleet import TTL_S, Members, Running
from .test_fleet import another, http, of, owner

LOST = HistoryLost("another history than this hub has seen up to revision 12; it is at 7 now", 12, 7)


def noted(at: Running, action: str) -> list[AuditEntry]:
    """What members have noted of an action, as one of them shows it."""
    return at.hub.audit.select(AuditFilter(action=action))


async def test_of_a_member_that_is_declared_gone_one_of_the_others_notes_it(fleet: Members) -> None:
    await of(fleet, "a", "b", "c")
    await settle(TTL_S)
    dead = owner(fleet)
    dead.kill()
    await until(lambda: fleet.owners("one"))
    await settle(30)
    for each in fleet.running.values():
        (entry,) = noted(each, "ExpelMember")
        assert (entry.principal, entry.target, entry.kind) == ("hub", dead.name, AuditKind.CHANGE)


async def test_a_member_is_declared_gone_though_nothing_can_be_noted(fleet: Members) -> None:
    await of(fleet, "a", "b")
    await settle(TTL_S)
    dead = owner(fleet)
    left, row = another(fleet, dead), fleet.database.rows[dead.name]
    dead.kill()
    left.store.failures = 1000
    await until(lambda: row.member.status is MemberStatus.GONE)
    assert noted(left, "ExpelMember")  # it waits
    left.store.failures = 0
    await until(lambda: left.fleet.owns("one"))
    assert len(noted(left, "ExpelMember")) == 1


async def test_a_lost_history_is_said_and_noted_once_by_the_next_life(fleet: Members) -> None:
    await of(fleet, "a")
    one = fleet.running["a"]
    with capture_logs() as logs:
        fleet.database.lost = LOST
        await one.fleet.lost.wait()
        await until(lambda: "a" not in fleet.running)
    (said,) = [each for each in logs if each["event"] == "the database has lost history; this member restarts"]
    assert (said["error"], said["seen"], said["reached"], said["member"]) == (str(LOST), 12, 7, "a")
    assert not [each for each in logs if "declared gone" in each["event"]]
    with pytest.raises(UpstreamError, match="the database has lost what this member of the fleet has seen"):
        await one.fleet.wait_until_may_act()
    fleet.database.lost = None
    for _ in range(2):
        again = await fleet.start("a", http())
        await until(lambda: fleet.owners("one"))
        await settle(5)
        (entry,) = noted(again, "LoseHistory")
        assert (entry.principal, entry.target) == ("hub", "a: revision 12, now 7")
        again.kill()


async def test_a_life_that_learns_at_once_that_it_is_over_leaves_it_to_the_next_one_to_note_it(fleet: Members) -> None:
    fleet.losses["a"] = [LOST]
    fleet.database.lost = replaced = HistoryLost("another one", 30, 20)
    ended = await fleet.start("a", http())
    await ended.fleet.lost.wait()
    await until(lambda: "a" not in fleet.running)
    assert [each.seen for each in fleet.losses["a"]] == [12, replaced.seen]
    fleet.database.lost = None
    again = await fleet.start("a", http())
    await until(lambda: len(noted(again, "LoseHistory")) == 2)


async def test_a_member_that_was_declared_gone_says_why(fleet: Members) -> None:
    await of(fleet, "a", "b")
    await settle(TTL_S)
    gone = owner(fleet)
    with capture_logs() as logs:
        gone.store.sever(cut=True)
        await until(lambda: another(fleet, gone).fleet.owns("one"))
        gone.store.sever(cut=False)
        await gone.fleet.lost.wait()
    (said,) = [each for each in logs if each["event"] == "this member was declared gone; it restarts"]
    assert (said["error"], said["member"]) == ("gone", gone.name)
    await settle(10)
    assert fleet.losses[gone.name] == []
