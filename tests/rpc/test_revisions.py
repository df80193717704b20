"""Two clients read a server, think, and change it: one wins, the other gets what is there now."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from grpc_status import rpc_status

import hubbub_client
from hubbub.v1 import server_pb2
from hubbub_client import RevisionConflict, ServerSpec
from hubbubd.core.access import Grant, Role
from hubbubd.runtime.hub import Hub

from .conftest import TOKEN, Caller, explain, spec_of
from .test_bad_input import METHODS
from .test_connect import Web, origins, web

__all__ = ["origins", "web"]

SECRET = "a-secret-of-this-test"
URL = "http://127.0.0.1:9/mcp"


@pytest.fixture
async def added(api: Caller) -> server_pb2.GetServerResponse:
    """A server of the API, as it was read."""
    spec = spec_of(name="mine", url=URL, headers={"Key": SECRET}, call_timeout_s=7)
    await api(METHODS["AddServer"], server_pb2.AddServerRequest(spec=spec))
    return await read(api)


@pytest.fixture
async def clients(address: str) -> AsyncIterator[list[hubbub_client.Hub]]:
    """Two programs with the library."""
    async with (
        hubbub_client.connect(address=address, token=TOKEN) as one,
        hubbub_client.connect(address=address, token=TOKEN) as other,
    ):
        yield [one, other]


async def read(api: Caller) -> server_pb2.GetServerResponse:
    return await api(METHODS["GetServer"], server_pb2.GetServerRequest(name="mine"))


def conflict_of(error: grpc.aio.AioRpcError) -> server_pb2.RevisionConflict:
    """What is there now, from the details of a status."""
    status, found = rpc_status.from_call(error), server_pb2.RevisionConflict()
    assert status is not None
    assert any(detail.Unpack(found) for detail in status.details)
    return found


async def test_of_two_updates_of_the_same_revision_one_wins_and_the_other_is_told_what_is_there(
    api: Caller, added: server_pb2.GetServerResponse
) -> None:
    refused: list[grpc.aio.AioRpcError] = []

    async def update(message: str) -> None:
        changed = server_pb2.ServerSpec()
        changed.CopyFrom(added.spec)
        changed.pending_requests.timeout_message = message
        request = server_pb2.UpdateServerRequest(spec=changed, expected_revision=added.server.revision)
        try:
            await api(METHODS["UpdateServer"], request)
        except grpc.aio.AioRpcError as error:
            refused.append(error)

    async with anyio.create_task_group() as both:
        both.start_soon(update, "one")
        both.start_soon(update, "other")
    [error] = refused
    refusal, now, there = explain(error), await read(api), conflict_of(error)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "REVISION_CONFLICT")
    assert refusal.metadata == {"server": "mine", "revision": str(now.server.revision)}
    assert (there.revision, there.spec, list(there.withheld)) == (now.server.revision, now.spec, ["http.headers.Key"])
    assert now.spec.pending_requests.timeout_message in ("one", "other")
    assert now.server.revision > added.server.revision


async def test_each_change_by_the_library_is_refused_for_a_revision_that_is_past(
    added: server_pb2.GetServerResponse, clients: list[hubbub_client.Hub]
) -> None:
    client, old = clients[0], added.server.revision
    assert await client.servers.set_roots("mine", "ask", revision=old) == "ask"
    for change in (client.servers.set_roots("mine", None, revision=old), client.servers.remove("mine", revision=old)):
        with pytest.raises(RevisionConflict) as caught:
            await change
        assert (caught.value.revision > old, caught.value.roots) == (True, "ask")


async def test_an_update_by_the_library_of_some_options_leaves_the_others(
    hub: Hub, added: server_pb2.GetServerResponse, clients: list[hubbub_client.Hub]
) -> None:
    await clients[0].servers.update(ServerSpec(name="mine", ping_timeout_s=3), only=["ping_timeout_s"])
    config = hub.servers.get("mine").config
    assert (config.url, config.call_timeout_s, config.ping_timeout_s) == (URL, 7, 3)
    assert config.headers["Key"].get_secret_value() == SECRET


async def test_a_withheld_secret_that_comes_back_stays_what_it_is(
    hub: Hub, api: Caller, added: server_pb2.GetServerResponse
) -> None:
    assert SECRET not in str(added)
    request = server_pb2.UpdateServerRequest(spec=added.spec, expected_revision=added.server.revision)
    await api(METHODS["UpdateServer"], request)
    assert hub.servers.get("mine").config.headers["Key"].get_secret_value() == SECRET


async def test_two_updates_of_different_parts_both_hold(api: Caller, added: server_pb2.GetServerResponse) -> None:
    for path, spec in (
        ("timeouts.ping", spec_of(name="mine", ping_timeout_s=3)),
        ("queue.max_in_flight", spec_of(name="mine", max_in_flight=4)),
    ):
        request = server_pb2.UpdateServerRequest(spec=spec, update_mask=FieldMask(paths=[path]))
        await api(METHODS["UpdateServer"], request)
    now = (await read(api)).spec
    assert (now.timeouts.call.seconds, now.timeouts.ping.seconds, now.queue.max_in_flight) == (7, 3, 4)
    assert now.http == added.spec.http


async def test_roots_and_removal_are_refused_for_a_revision_that_is_past(
    api: Caller, added: server_pb2.GetServerResponse
) -> None:
    old = added.server.revision
    ask = server_pb2.Roots(ask=server_pb2.Roots.Ask())
    first = server_pb2.SetRootsRequest(name="mine", roots=ask, expected_revision=old)
    changed = await api(METHODS["SetRoots"], first)
    assert changed.revision > old
    for rpc, request in (
        ("SetRoots", first),
        ("RemoveServer", server_pb2.RemoveServerRequest(name="mine", expected_revision=old)),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await api(METHODS[rpc], request)
        assert explain(caught.value).reason == "REVISION_CONFLICT"
        assert conflict_of(caught.value).roots == ask
    now = server_pb2.RemoveServerRequest(name="mine", expected_revision=changed.revision)
    await api(METHODS["RemoveServer"], now)


async def test_any_revision_but_the_one_that_is_there_is_refused(
    api: Caller, added: server_pb2.GetServerResponse
) -> None:
    for revision in (0, added.server.revision - 1, added.server.revision + 1):
        request = server_pb2.UpdateServerRequest(spec=added.spec, expected_revision=revision)
        assert (await api.refused(METHODS["UpdateServer"], request)).reason == "REVISION_CONFLICT"


async def test_only_who_may_administer_a_server_is_told_how_it_is_configured(
    hub: Hub, api: Caller, added: server_pb2.GetServerResponse
) -> None:
    _, secret = await hub.tokens.create("ops", [Grant(Role.OPERATOR)], by="test", ttl_s=None, may_name_others=False)
    operator = Caller(api.channel, (("authorization", f"Bearer {secret}"),))
    seen = await read(operator)
    assert seen == server_pb2.GetServerResponse(server=seen.server)
    stale = server_pb2.SetRootsRequest(name="mine", expected_revision=0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await operator(METHODS["SetRoots"], stale)
    there = conflict_of(caught.value)
    told = {field.name for field, _ in there.ListFields()}
    assert (there.revision, told) == (added.server.revision, {"revision", "roots"})


async def test_what_is_too_deep_to_be_shown_over_connect_is_told_in_bytes(web: Web) -> None:
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    root = {"uri": "file:///a", "_meta": {"deep": deep}}
    spec = {"name": "rooted", "http": {"url": "http://127.0.0.1:9/mcp"}, "roots": {"fixed": {"roots": [root]}}}
    assert (await web.post("/hubbub.v1.ServerService/AddServer", {"spec": spec})).is_success
    body = {"spec": spec, "expectedRevision": 1}
    _, code, reason, error = await web.refused("/hubbub.v1.ServerService/UpdateServer", body)
    assert (code, reason) == ("aborted", "REVISION_CONFLICT")
    packed = server_pb2.RevisionConflict.FromString(base64.b64decode(error["details"][-1]["value"] + "=="))
    assert json.loads(packed.spec.roots.fixed.roots[0]) == root


async def test_a_mask_of_too_many_paths_is_refused(api: Caller, added: server_pb2.GetServerResponse) -> None:
    mask = FieldMask(paths=["retry"] * 101)
    request = server_pb2.UpdateServerRequest(spec=added.spec, update_mask=mask)
    assert list((await api.refused(METHODS["UpdateServer"], request)).violations) == ["update_mask"]


async def test_a_mask_without_paths_changes_nothing(api: Caller, added: server_pb2.GetServerResponse) -> None:
    spec = spec_of(name="mine", url="http://127.0.0.1:9/other")
    await api(METHODS["UpdateServer"], server_pb2.UpdateServerRequest(spec=spec, update_mask=FieldMask()))
    assert (await read(api)).spec == added.spec


async def test_what_is_there_now_is_told_as_far_as_a_status_has_room(
    api: Caller, added: server_pb2.GetServerResponse
) -> None:
    long = spec_of(name="mine", timeout_message="x" * 5000)
    mask = FieldMask(paths=["pending_requests.timeout_message"])
    await api(METHODS["UpdateServer"], server_pb2.UpdateServerRequest(spec=long, update_mask=mask))
    stale = server_pb2.RemoveServerRequest(name="mine", expected_revision=added.server.revision)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await api(METHODS["RemoveServer"], stale)
    there = conflict_of(caught.value)
    assert (there.revision, there.HasField("spec")) == ((await read(api)).server.revision, False)
