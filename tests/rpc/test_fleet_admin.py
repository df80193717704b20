"""Operations that need another member: a server is handed on by its owner, and the dead are asked whether they live."""

from types import SimpleNamespace
from typing import Any

import pytest

from hubbub.v1 import fleet_pb2
from hubbubd.core.audit import AuditFilter
from hubbubd.rpc.fleet.peers import Peers
from hubbubd.rpc.listeners.grpc_server import SERVICES
from hubbubd.runtime.ownership import Owner

from .fleet import LARGE, Fleet, Member, made, owner

__all__ = ["made", "owner"]  # the fixtures

RPCS = {method.name: method for method in SERVICES["FleetService"].methods}


async def test_a_server_is_handed_on_where_it_is_and_the_audit_log_has_it_once(made: Fleet, owner: Member) -> None:
    reached = await made.start("a")
    has: Any = SimpleNamespace(me="b", ownable_names=lambda: {"one"}, owns="one".__eq__)
    owner.hub.fleet = has
    request = fleet_pb2.MoveServerRequest(server="one", member="b")
    moved: Any = await reached.api.raw(RPCS["MoveServer"], request.SerializeToString())
    owner.hub.fleet = None
    assert moved.member == "b"
    newest = reached.hub.audit.newest(AuditFilter(), None, False)
    (entry,) = [each for each in newest if each.action == "MoveServer"]
    assert (entry.target, entry.outcome) == ("one", "OK")


async def test_a_hub_without_a_fleet_refuses_each_of_them(made: Fleet, owner: Member) -> None:
    for method in RPCS.values():
        refused = await owner.api.refused(method, b"\x0a\x03one")
        assert refused.reason == "NO_FLEET"


async def test_a_member_that_lives_answers(made: Fleet, owner: Member) -> None:
    peers = Peers(made.settings_of("a", made.authority).tls, LARGE)
    assert await peers.answers(owner.owner)
    await peers.close()


@pytest.mark.parametrize("who", ["another life", "nobody"])
async def test_whoever_is_not_this_life_of_it_does_not(made: Fleet, owner: Member, who: str, free_port: int) -> None:
    asked = {
        "another life": Owner("b", 2, owner.port.address),
        "nobody": Owner("b", 1, f"127.0.0.1:{free_port}"),
    }
    peers = Peers(made.settings_of("a", made.authority).tls, LARGE)
    assert not await peers.answers(asked[who])
    await peers.close()


async def test_a_member_that_refuses_to_say_who_it_is_lives_all_the_same(made: Fleet, owner: Member) -> None:
    settings = made.settings_of("a", made.authority, made.authority.issue_client("a"))
    peers = Peers(settings.tls, LARGE)
    assert await peers.answers(owner.owner)
    await peers.close()
