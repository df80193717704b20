"""A host whose connection broke goes on where it was, in the revisions that have sessions."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub_http import WATCH_END
from hubbubd.downstream import ReplayStream
from hubbubd.downstream.hosts.limits import DEFAULTS
from hubbubd.downstream.sessions.replay import ReplayStreams
from hubbubd.rpc.mcp import transport
from hubbubd.rpc.mcp.transport import HostHttpRequest

from ..runtime.peer import Outcome, Sent
from .conftest import LIMIT_S
from .mcp_host import Event, Events, Host, Stage, stage, tool


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that takes a moment gets its stream."""
    monkeypatch.setattr(transport, "PRIME_S", 0.01)


class Slow:
    """Each call waits until it is let go."""

    def __init__(self) -> None:
        self.go = anyio.Event()

    async def serve(self, sent: Sent) -> Outcome:
        await self.go.wait()
        return {"content": [], "for": sent.params["name"]}


@pytest.fixture
def slow() -> Slow:
    """What the server does."""
    return Slow()


@pytest.fixture
async def made(tmp_path: Path, slow: Slow) -> AsyncIterator[Stage]:
    """A hub with that server."""
    async with stage(tmp_path) as stage_:
        stage_.peers["one"].behaviour = slow.serve
        yield stage_


def result(event: Event | None) -> object:
    return event.data["result"]["for"]


async def primed(events: Events) -> str:
    """The id with which a stream begins."""
    first = await events.next()
    assert first.data is None
    assert first.id is not None
    assert first.retry is not None
    return first.id


async def test_what_was_said_after_an_event_is_said_again_and_nothing_else(made: Stage, slow: Slow) -> None:
    host = await made.host().begin()
    async with host.stream("POST", tool(1, progressToken="p")) as events:
        await primed(events)
        sent = await made.arrived()
        for number in (1, 2, 3):
            sent.progress(number)
        seen = await events.next()
        assert seen.data["params"]["progress"] == 1
    async with host.stream("GET", last_event_id=seen.id or "") as events:
        more = [await events.next(), await events.next()]
        assert [event and event.data["params"]["progress"] for event in more] == [2, 3]
        slow.go.set()
        assert result(await events.next()) == "t"
        assert await events.next() is None


async def test_a_stream_is_resumed_as_often_as_it_breaks_and_an_event_keeps_its_id(made: Stage, slow: Slow) -> None:
    host = await made.host().begin()
    async with host.stream("POST", tool(1, progressToken="p")) as events:
        last = await primed(events)
        sent = await made.arrived()
        for number in (1, 2, 3):
            sent.progress(number)
        ids = [event.id for event in [await events.next() for _ in range(3)] if event is not None]
    for number in (1, 2, 3):
        async with host.stream("GET", last_event_id=last) as events:
            event = await events.next()
            assert (event.id, event.data["params"]["progress"]) == (ids[number - 1], number)
            last = event.id or ""
    slow.go.set()
    async with host.stream("GET", last_event_id=last) as events:
        assert [result(event) for event in await events.rest()] == ["t"]


async def test_streams_of_one_session_are_kept_apart(made: Stage, slow: Slow) -> None:
    host = await made.host().begin()
    began: list[str] = []
    for name in ("a", "b"):
        async with host.stream("POST", tool(name, name)) as events:
            began.append(await primed(events))
    slow.go.set()
    for name, last in zip(("b", "a"), reversed(began), strict=True):
        async with host.stream("GET", last_event_id=last) as events:
            assert [result(event) for event in await events.rest()] == [name]


async def test_a_response_that_was_sent_is_still_there_in_case_that_it_never_arrived(made: Stage, slow: Slow) -> None:
    host = await made.host().begin()
    async with host.stream("POST", tool(1, progressToken="p")) as events:
        began = await primed(events)
        (await made.arrived()).progress(1)
        slow.go.set()
        last = (await events.rest())[-1]
    async with host.stream("GET", last_event_id=began) as events:
        assert [event.id for event in await events.rest()] == [last.id]


@pytest.mark.parametrize("last", ["1_99999999999999", "9_1", "x", "-1_1", "1" * 5000, ""])
async def test_an_event_that_is_not_kept_is_named_as_such(made: Stage, last: str) -> None:
    host = await made.host().begin()
    refused = await host.send("GET", last_event_id=last)
    assert (refused.status_code, refused.json()["error"]["data"]["reason"]) == (400, "EVENT_NOT_KEPT")


async def test_events_of_another_session_cannot_be_fetched(made: Stage) -> None:
    host = await made.host().begin()
    async with host.stream("POST", tool(1)) as events:
        began = await primed(events)
    other = await (await made.named("other")).begin()
    assert (await other.send("GET", last_event_id=began)).status_code == 400
    stolen = Host(made.http, headers=other.headers | {"mcp-session-id": host.headers["mcp-session-id"]})
    assert (await stolen.send("GET", last_event_id=began)).status_code == 404


async def test_an_older_revision_gets_no_event_without_data(
    made: Stage, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "KEEPALIVE_S", 0.01)
    host = await made.host().begin("2025-06-18")
    async with host.stream("POST", tool(1)) as events:
        await made.arrived()
        slow.go.set()
        (only,) = await events.rest()
    assert result(only) == "t"
    assert only.id is not None


async def test_a_quick_response_is_plain_json_and_nothing_of_it_is_kept(
    made: Stage, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "PRIME_S", LIMIT_S)
    slow.go.set()
    host = await made.host().begin()
    response = await host.post(tool(1))
    assert response.headers["content-type"] == "application/json"
    assert (await host.send("GET", last_event_id="2_0")).status_code == 400


class Connection:
    """A connection to a host that reads nothing, until it is closed."""

    def __init__(self, replay: ReplayStream) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = HostHttpRequest.of({"headers": [], WATCH_END: lambda: self.closed}, self._receive, self._send)
        self._replay = replay

    async def resume(self) -> None:
        """Begins to resume the stream from its start."""
        await transport.resume_stream(self._request, self._replay, 0)

    async def _receive(self) -> dict[str, Any]:
        raise AssertionError("it has sent all that it sends")

    async def _send(self, _message: Any) -> None:
        await anyio.sleep_forever()


async def test_a_host_is_there_for_as_long_as_its_newest_connection() -> None:
    replay = ReplayStreams(DEFAULTS).open(1)
    old, new = Connection(replay), Connection(replay)
    async with anyio.create_task_group() as tasks:
        for connection in (old, new):
            tasks.start_soon(connection.resume)
            await anyio.wait_all_tasks_blocked()
        for connection, here in ((old, True), (new, False)):
            connection.closed.set_result(None)
            await anyio.sleep(0.01)
            assert replay.presence.is_connected is here
        tasks.cancel_scope.cancel()
