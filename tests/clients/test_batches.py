"""Watches of which the hub sends several steps at once, as programs see them."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio

from hubbub.v1 import server_pb2
from hubbub_client import connect
from hubbub_client.data.watch_events import Upsert

LIMIT_S = 60


def server(name: str) -> server_pb2.WatchServersResponse:
    return server_pb2.WatchServersResponse(resume_token=f"at-{name}", upsert=server_pb2.Server(name=name))


async def test_the_steps_of_a_batch_come_one_by_one_and_a_watch_goes_on_after_the_last_of_them(
    hub: Any, refusal: Any
) -> None:
    async def script(request: Any) -> AsyncIterator[Any]:
        assert request.allow_batches
        if not request.resume_token:
            yield server_pb2.WatchServersResponse(resume_token="at-b", batch=[server("a"), server("b")])
            raise refusal("UNAVAILABLE", "SHUTTING_DOWN")
        yield server("c")
        await anyio.sleep_forever()

    hub.streams["WatchServers"] = script
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client, contextlib.aclosing(client.servers.watch()) as events:
            seen = [await anext(events) for _ in range(3)]
    assert [(event.record.name, event.resume_token) for event in seen if isinstance(event, Upsert)] == [
        ("a", "at-a"),
        ("b", "at-b"),
        ("c", "at-c"),
    ]
    assert [request.resume_token for request in hub.requests("WatchServers")] == ["", "at-b"]
