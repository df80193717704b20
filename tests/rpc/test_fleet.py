"""RPCs about servers of other members: carried out at the owner, once, with the same outcome."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hubbub.v1 import call_pb2
from hubbubd.rpc.server import SERVICES

from .conftest import Until
from .fleet import Fleet, Member, fleet, one

CALL = SERVICES["CallService"].methods_by_name["CallMethod"]


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with fleet(tmp_path) as made:
        yield made


@pytest.fixture
async def two(three: Fleet, until: Until) -> tuple[Member, Member]:
    """The ingress, and the owner of the server `one`."""
    ingress = await three.start("a")
    owner = await three.start("b", one())
    await until(lambda: bool(owner.peer.links))
    return ingress, owner


def echo(params: bytes = b'{"name":"echo"}') -> call_pb2.CallMethodRequest:
    return call_pb2.CallMethodRequest(spec=call_pb2.CallSpec(server="one", method="tools/call", params=params))


async def test_a_call_at_another_member_is_made_by_the_owner(two: tuple[Member, Member]) -> None:
    ingress, owner = two
    response = await ingress.api(CALL, echo())
    assert response.call.result == b'{"echo":{"name":"echo"}}'
    assert [sent.method for sent in owner.peer.sent] == ["tools/call"]
    assert not ingress.world.peers["one"].sent
