"""A member says where others reach it; what becomes of that keeps it from nothing."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog.testing

from hubbubd.program.fleet_join import FleetTerm
from hubbubd.store import StoreUnavailable
from hubbubd.store.membership import Expelled


class Unheard:
    """A membership that takes no news."""

    name, life = "a", 7

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
