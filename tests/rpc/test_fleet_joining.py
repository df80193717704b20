"""A member says where others reach it; what becomes of that keeps it from nothing."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog.testing

from hubbubd.members import Member, MemberStatus
from hubbubd.program.fleet_join import FleetTerm
from hubbubd.runtime.fleet.member import FleetOwnership
from hubbubd.store import StoreUnavailable
from hubbubd.store.membership import Expelled


class Unheard:
    """A membership that takes no news."""

    name, term = "a", 7

    def __init__(self, error: StoreUnavailable) -> None:
        self._error = error

    async def publish(self, address: str, forward: str) -> None:
        assert (address, forward) == ("127.0.0.1:1", "127.0.0.1:2")
        raise self._error


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (StoreUnavailable("away"), ["warning", "info"]),
        (Expelled("gone"), []),
    ],
    ids=["away", "gone"],
)
async def test_a_member_goes_on_that_could_not_say_where_it_is(error: StoreUnavailable, logged: list[str]) -> None:
    parts: dict[str, Any] = {
        "settings": SimpleNamespace(address=""),
        "membership": Unheard(error),
        "fleet": None,
        "port": SimpleNamespace(address="127.0.0.1:2"),
    }
    with structlog.testing.capture_logs() as events:
        await cast("Any", FleetTerm)(**parts).publish_addresses("127.0.0.1:1")
    assert [each["log_level"] for each in events] == logged


class Published:
    """A membership of one member, whose row has the addresses that were published."""

    name, term, lease_ttl_s = "a", 7, 30.0
    address, forward = "", ""

    async def publish(self, address: str, forward: str) -> None:
        self.address, self.forward = address, forward

    async def members(self) -> list[Member]:
        own = Member(
            name="a",
            term=7,
            status=MemberStatus.LIVE,
            address=self.address,
            forward=self.forward,
            version="1",
            position=0,
            overdue=False,
            silent_s=0.0,
            schema=3,
        )
        return [own]


async def test_a_member_shows_its_own_addresses_once_it_has_joined() -> None:
    membership = cast("Any", Published())
    fleet = FleetOwnership(membership, drain_timeout_s=1, rebalance=False, losses=[])
    await fleet.refresh_members()
    port = SimpleNamespace(address="127.0.0.1:2")
    term = cast("Any", FleetTerm)(SimpleNamespace(address=""), membership, fleet, port)
    await term.publish_addresses("127.0.0.1:1")
    assert [(each.address, each.forward) for each in fleet.members()] == [("127.0.0.1:1", "127.0.0.1:2")]
