"""Watches whose callers take several steps in one response: the same steps and tokens, in fewer responses."""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from pydantic import TypeAdapter

from hubbub.v1 import server_pb2
from hubbubd.config import HubSettings, ServerConfig
from hubbubd.core.access import EVERYTHING
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import ServerFilter
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.core.servers.catalog import CatalogKind, CatalogList, Freshness
from hubbubd.core.tasks import TaskStatus
from hubbubd.errors import HubError
from hubbubd.rpc.messages import api_records, watch
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.records import broadcast
from hubbubd.store import Write
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import TokenFile
from hubbubd.upstream.connector import McpConnector

from ..raising import raising
from . import test_openapi
from .conftest import LIMIT_S, Caller, gate, serve, settled
from .test_bad_input import METHODS
from .test_connect import Web, origins, web
from .test_showing import CALL, REQUEST, TASK

__all__ = ["origins", "web"]

WATCHES = ("WatchServers", "WatchCalls", "WatchPendingRequests", "WatchTasks", "WatchCatalogLists")
COUNT = 60
LONG, TOO_LONG = b'"%s"' % (b"x" * 20_000), b'"%s"' % (b"x" * watch.TOGETHER_BYTES)
"""Documents of which several fit into one response, and none besides another step."""

AT_REST = server_pb2.SERVER_STATE_DISCONNECTED

Steps = list[Any]


def stored() -> list[tuple[str, Any]]:
    """Records that nothing changes any more, with their keys in the store. Calls have long documents, one a longer."""
    many: list[tuple[str, Any]] = []
    for at in range(COUNT):
        params = TOO_LONG if at == COUNT // 2 else LONG
        name, moment = f"r{at:03}", time.time() - at
        call = replace(CALL, id=name, created_at=moment, completed_at=moment, state=CallState.COMPLETED, params=params)
        request = replace(REQUEST, id=name, created_at=moment, claim=None, state=RequestState.WITHDRAWN)
        task = replace(
            TASK, id=name, created_at=moment, last_updated_at=moment, ttl_ms=None, status=TaskStatus.COMPLETED
        )
        tools = CatalogList(id=f"{name}/tool", server=name, kind=CatalogKind.TOOL, freshness=Freshness.STALE, count=at)
        many += [(f"call/{name}", call), (f"request/{name}", request), (f"task/{name}", task)]
        many.append((f"catalog/{name}/tool", tools))
    return many


@pytest.fixture(scope="module")
async def crowded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Caller]:
    """A caller of a hub with many records of each noun."""
    directory: Path = tmp_path_factory.mktemp("hub")
    store = await SqliteStore.open(":memory:")
    for key, record in stored():  # one by one: each has a revision, and so a token, of its own
        await store.commit([Write(key, TypeAdapter[Any](type(record)).dump_json(record))])
    names = [f"r{at:03}" for at in range(COUNT)]
    servers = {name: ServerConfig(name=name, transport="http", url="http://127.0.0.1:9/mcp") for name in names}
    settings = HubSettings(data_dir=directory)
    async with (
        settled(),
        Hub.open(store, McpConnector(TokenFile.open(directory)), servers, settings) as hub,
        serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        for name in names:
            await hub.servers.disconnect(name)
        api = Caller(channel)
        with anyio.fail_after(LIMIT_S):
            while any(step.upsert.state != AT_REST for step in (await responses(api, "WatchServers"))[:-1]):
                pass
        yield api
    await store.close()


async def responses(api: Caller, rpc: str, **request: Any) -> list[Any]:
    """What a watch sends up to the end of its snapshot."""
    method = METHODS[rpc]
    asks, answers = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    path = f"/{method.containing_service.full_name}/{method.name}"
    call: Any = api.channel.unary_stream(path, asks.SerializeToString, answers.FromString)(
        asks(**request), metadata=api.metadata
    )
    found: list[Any] = []
    with anyio.fail_after(LIMIT_S):
        while not (found and steps_of(found[-1:])[-1].HasField("synced")):
            found.append(await call.read())
    call.cancel()
    return found


def steps_of(responses: list[Any]) -> Steps:
    """All steps, in their order."""
    return [step for response in responses for step in (response.batch or [response])]


@pytest.mark.parametrize("rpc", WATCHES)
async def test_a_snapshot_has_the_same_steps_in_fewer_responses(crowded: Caller, rpc: str) -> None:
    single = await responses(crowded, rpc)
    batched = await responses(crowded, rpc, allow_batches=True)
    assert len(single) > COUNT
    assert steps_of(batched) == single
    assert len(batched) < len(single) / 2
    assert not any(response.WhichOneof("event") for response in batched if response.batch)
    assert all(response.resume_token == steps_of([response])[-1].resume_token for response in batched)


@pytest.mark.parametrize("rpc", WATCHES)
async def test_who_does_not_ask_for_batches_gets_none(crowded: Caller, rpc: str) -> None:
    assert all(step.WhichOneof("event") and not step.batch for step in await responses(crowded, rpc))


async def test_a_response_is_full_but_never_overfull_and_what_is_too_long_comes_alone(crowded: Caller) -> None:
    batched = await responses(crowded, "WatchCalls", allow_batches=True)
    sizes = [sum(step.ByteSize() for step in response.batch) for response in batched if response.batch]
    assert all(size <= watch.TOGETHER_BYTES for size in sizes)
    assert [len(response.batch) for response in batched].count(3) > COUNT // 3 - 3, "all that fit into each"
    alone = [response for response in batched if response.upsert.params == TOO_LONG]
    assert len(alone) == 1
    for one, other in pairwise(batched):
        together = steps_of([one]) + steps_of([other])[:1]
        assert sum(step.ByteSize() for step in together) > watch.TOGETHER_BYTES


@pytest.mark.parametrize("rpc", WATCHES)
async def test_whoever_has_read_a_part_of_a_batch_goes_on_after_any_of_its_steps(crowded: Caller, rpc: str) -> None:
    steps = steps_of(await responses(crowded, rpc, allow_batches=True))
    for place in (1, len(steps) // 2):
        rest = await responses(crowded, rpc, allow_batches=True, resume_token=steps[place].resume_token)
        repeated, new = steps_of(rest)[: place + 1 - len(steps)], steps_of(rest)[place + 1 - len(steps) :]
        assert new == steps[place + 1 :]
        assert all(step in steps[: place + 1] for step in repeated), "of the same commit, at most"


async def test_json_has_batches_too_as_they_are_described(hub: Hub, web: Web) -> None:
    await hub.servers.disconnect("away")
    (response,) = await web.up_to(lambda step: "batch" in step, {"allowBatches": True})
    assert [set(step) for step in response["batch"]] == [{"resumeToken", "upsert"}, {"resumeToken", "synced"}]
    assert response["resumeToken"] == response["batch"][-1]["resumeToken"]
    test_openapi.schema("hubbub.v1.WatchServersResponse").validate(response)
    assert json.loads(json.dumps(response)) == response


Watching = AsyncGenerator[bytes, None]
SHOWN = partial(api_records.server, seen=EVERYTHING)


async def several(hub: Hub, count: int) -> list[str]:
    """Servers that rest."""
    names = [f"s{at:02}" for at in range(count)]
    for name in names:
        await hub.servers.add(ServerConfig(name=name, transport="http", url="http://127.0.0.1:9/mcp"))
    for name in ("away", *names):
        await hub.servers.disconnect(name)
    states = dict[str, Any]()
    async with aclosing(watching(hub)) as watched:
        while len(states) <= count or set(states.values()) != {AT_REST}:
            steps = await next_steps(watched)
            states |= {step.upsert.name: step.upsert.state for step in steps if step.HasField("upsert")}
    return names


def watching(hub: Hub, token: str = "", *, batches: bool = True, shown: Any = SHOWN) -> Watching:
    """A watch of all servers, as the hub serves it."""
    changes = hub.servers.watch(ServerFilter(), token)
    return watch.serialize_events(changes, server_pb2.WatchServersResponse, shown, batches=batches)


async def next_steps(watched: Watching) -> Steps:
    """The steps of the next response."""
    with anyio.fail_after(LIMIT_S):
        return steps_of([server_pb2.WatchServersResponse.FromString(await anext(watched))])


async def snapshot(watched: Watching) -> Steps:
    """The steps of a watch up to the end of its snapshot."""
    steps = await next_steps(watched)
    while not steps[-1].HasField("synced"):
        steps += await next_steps(watched)
    return steps


async def test_changes_that_come_while_nobody_reads_go_together_and_each_is_serialised_once(hub: Hub) -> None:
    names, converted = await several(hub, 10), list[str]()

    def counting(record: Any) -> server_pb2.Server:
        converted.append(record.name)
        return SHOWN(record)

    async with (
        aclosing(watching(hub, shown=counting)) as one,
        aclosing(watching(hub, shown=counting)) as other,
        aclosing(watching(hub, shown=counting, batches=False)) as single,
    ):
        for each in (one, other, single):
            await snapshot(each)
        converted.clear()
        for name in names[:5]:
            await hub.servers.remove(name)
        for name in names[5:]:
            await hub.servers.set_roots(name, None)
        raw = await anext(one)
        steps = steps_of([server_pb2.WatchServersResponse.FromString(raw)])
        assert [step.removed.id or step.upsert.name for step in steps] == names
        assert await next_steps(other) == steps
        alone = [await anext(single) for _ in steps]
    assert [server_pb2.WatchServersResponse.FromString(each) for each in alone] == steps
    assert all(each in raw for each in alone)
    assert converted == names[5:]


async def test_a_batch_of_a_snapshot_ends_where_others_get_their_turn(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = await several(hub, 12)
    monkeypatch.setattr(broadcast, "SLICE", 5)
    async with aclosing(watching(hub)) as watched:
        sizes = [len(await next_steps(watched)) for _ in range(3)]
    assert sizes == [5, 5, 4], f"{len(names) + 1} servers and the end of the snapshot"


async def test_what_comes_before_a_step_that_cannot_be_made_is_not_lost(hub: Hub) -> None:
    await several(hub, 5)
    made = list[str]()

    def shown(record: Any) -> server_pb2.Server:
        if len(made) == 3:
            raise ValueError
        made.append(record.name)
        return SHOWN(record)

    async with aclosing(watching(hub, shown=shown)) as watched:
        assert [step.upsert.name for step in await next_steps(watched)] == made
        with pytest.raises(ValueError):
            await anext(watched)


async def test_a_watcher_that_falls_behind_is_told_the_token_of_the_last_step_that_it_got(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = await several(hub, 12)
    async with aclosing(watching(hub)) as slow:
        await snapshot(slow)
        for name in names[:3]:
            await hub.servers.remove(name)
        read = await next_steps(slow)
        assert [step.removed.id for step in read] == names[:3]
        monkeypatch.setattr(broadcast, "BUFFER_EVENTS", 5)
        for name in names[3:]:
            await hub.servers.remove(name)
        with raising(HubError, "WATCHER_TOO_SLOW") as closed:
            await anext(slow)
    assert closed.value.metadata["resume_token"] == read[-1].resume_token
    async with aclosing(watching(hub, read[-1].resume_token)) as again:
        assert [step.removed.id for step in await next_steps(again)] == names[3:]
