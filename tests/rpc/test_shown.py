"""What those see of a server who may not see its log."""

import sys

import anyio
import pytest
from google.protobuf.duration_pb2 import Duration

from hubbub.v1 import call_pb2, catalog_pb2, server_pb2
from hubbubd.config import ServerConfig
from hubbubd.core.access import Grant, Role
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub

from .conftest import Caller, until
from .test_bad_input import METHODS

WORD = "marker-4711"
DIES = f"import sys; sys.stderr.write('{WORD}\\n'); sys.stderr.flush(); sys.exit(3)"


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(("role", "sees"), [(Role.CALLER, False), (Role.ADMIN, True)])
async def test_without_see_a_fault_has_no_details_and_a_server_no_counts(
    hub: Hub, api: Caller, role: Role, sees: bool
) -> None:
    seldom = {"backoff_s": (1000,), "backoff_max_s": 1000, "protocol": "2025-11-25"}
    config = {"name": "dies", "command": sys.executable, "args": ("-c", DIES), **seldom}
    await hub.servers.add(ServerConfig.model_validate(config))
    await hub.calls.start(CallSpec(server="dies", method="tools/list", call_id="others"), "somebody")
    await until(lambda: _rests(hub))
    await until(lambda: hub.servers.get("dies").counts.queued == 1)
    _, secret = await hub.tokens.create("me", [Grant(role)], by="test", ttl_s=None, may_name_others=False)
    caller = Caller(api.channel, (("authorization", f"Bearer {secret}"),))
    own = call_pb2.CallSpec(server="dies", method="tools/list", call_id="mine", timeout=Duration(nanos=200_000_000))
    await caller(METHODS["StartCall"], call_pb2.StartCallRequest(spec=own))
    one = await caller(METHODS["GetServer"], server_pb2.GetServerRequest(name="dies"))
    request = server_pb2.WatchServersRequest(filter=server_pb2.ServerFilter(names=["dies"]))
    while not (watched := await caller(METHODS["WatchServers"], request)).upsert.error.code:
        await anyio.sleep(0.01)  # a watch has what is written already
    listed = await caller(METHODS["ListServers"], server_pb2.ListServersRequest())
    for server in (one.server, watched.upsert, next(each for each in listed.servers if each.name == "dies")):
        assert server.error.code
        assert server.error.message
        assert (WORD.encode() in server.error.details, server.HasField("queue")) == (sees, sees)
    others = [
        await caller(METHODS["ListCatalogEntries"], catalog_pb2.ListCatalogEntriesRequest()),
        await caller(METHODS["GetCall"], call_pb2.GetCallRequest(id="mine")),
        await caller(METHODS["ListCalls"], call_pb2.ListCallsRequest()),
    ]
    assert sees or not [each for each in others if WORD.encode() in each.SerializeToString()]


def _rests(hub: Hub) -> bool:
    """Whether it has died, and is not started again for long."""
    connection = hub.servers.get("dies").connection
    return connection.state is ConnectionState.ERROR and (connection.next_retry_at or 0) > hub.clock.now() + 100
