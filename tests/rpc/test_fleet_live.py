"""What servers of other members tell while it happens: events, logs, resources, and the progress of calls."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from hubbub.v1 import call_pb2, event_pb2
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.rpc.fleet import live, merged_events
from hubbubd.rpc.fleet.changes import OwnershipChanges
from hubbubd.rpc.fleet.live_events import MAX_WAITING, stream_live_events
from hubbubd.rpc.fleet.merged_events import MergedEvents
from hubbubd.runtime.calls import LiveCalls, LogEvent, ProgressEvent
from hubbubd.runtime.calls.progress import MAX_EARLY
from hubbubd.runtime.ownership import Owner

from ..runtime.conftest import server
from ..runtime.peer import Outcome, Sent, never
from .call_stream import begin, streamed
from .conftest import LIMIT_S, refusing, until
from .fleet import Believed, Fleet, Member, Two, Wire, made, one
from .test_fleet import AUTHORIZED, CALL, RPCS, call, known, spec

__all__ = ["made"]  # the fixtures


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that was lost is tried again at once."""
    monkeypatch.setattr(merged_events, "RETRY_S", 0.05)
    monkeypatch.setattr(live, "RETRY_S", 0.05)


@pytest.fixture
async def two(made: Fleet) -> Two:
    """The ingress with the server `here`, and the owner of the server `one`."""
    ingress, owner = await made.start("a", server("here")), await made.start("b", one())
    await until(lambda: bool(owner.peer.links) and bool(ingress.world.peers["here"].links))
    return ingress, owner


class Read:
    """A stream of the API, as it is read."""

    def __init__(self, rpc: Any) -> None:
        self.rpc = rpc

    async def next(self) -> Any:
        with anyio.fail_after(LIMIT_S):
            response = await self.rpc.read()
        assert response is not grpc.aio.EOF
        return response

    async def event(self) -> Any:
        """The next response that is no sign of life."""
        while not (response := await self.next()).HasField("event"):
            pass
        return response


@asynccontextmanager
async def reading(member: Member, name: str, request: Message) -> AsyncIterator[Read]:
    method = RPCS[name]
    path = f"/{method.containing_service.full_name}/{method.name}"
    parse = GetMessageClass(method.output_type).FromString
    raw = request.SerializeToString()
    rpc = member.api.channel.unary_stream(path, response_deserializer=parse)(raw, metadata=member.api.metadata)
    try:
        yield Read(rpc)
    finally:
        rpc.cancel()


def say(member: Member, name: str, text: str) -> None:
    """A server of a member writes a log message."""
    member.world.peers[name].link.tell("notifications/message", {"level": "info", "data": text})


async def test_the_events_of_one_server_come_from_its_owner(two: Two) -> None:
    ingress, owner = two
    chosen = event_pb2.WatchEventsRequest(filter=event_pb2.EventFilter(server="one"))
    async with reading(ingress, "WatchEvents", chosen) as events:
        await events.next()
        say(ingress, "here", "here")
        say(owner, "one", "there")
        assert (await events.event()).event.server == "one"


async def test_a_member_that_was_lost_leaves_a_gap(two: Two) -> None:
    ingress, owner = two
    wire = Wire(owner.port.address)
    async with wire.laid() as address:
        ingress.believed.members = [Owner("b", 1, address)]
        async with reading(ingress, "WatchEvents", event_pb2.WatchEventsRequest()) as events:
            assert (await events.next()).dropped == 0
            await wire.cut()
            await until(lambda: not owner.hub.events._watchers)
            ingress.believed.members = [owner.owner]
            ingress.believed.hear("x", None)
            await until(lambda: bool(owner.hub.events._watchers))
            say(owner, "one", "again")
            response = await events.event()
            assert (response.event.server, response.dropped) == ("one", 1)


async def test_a_member_whose_connection_is_replaced_is_listened_to_again(two: Two) -> None:
    ingress, owner = two
    wire = Wire(owner.port.address)
    watching = reading(ingress, "WatchEvents", event_pb2.WatchEventsRequest())
    async with wire.laid() as address, watching as events:
        with ingress.hub.calls.listen("x", lambda *_: None):
            await events.next()

            def ears() -> list[object]:
                return [*owner.hub.events._watchers, *owner.hub.calls.live._followers]

            await until(lambda: len(ears()) == 2)
            before = ears()
            ingress.believed.hear("one", Owner("b", 1, address))
            await ingress.api(CALL, call())
            await until(lambda: len(ears()) == 2 and not any(ear in before for ear in ears()))
        say(owner, "one", "again")
        assert (await events.event()).event.server == "one"


async def test_the_log_of_a_server_is_read_at_its_owner(two: Two) -> None:
    ingress, owner = two
    say(owner, "one", "before")
    async with reading(ingress, "TailLogs", event_pb2.TailLogsRequest(server="one", follow=True)) as lines:
        assert b"before" in (await lines.event()).event.params
        say(owner, "one", "after")
        assert b"after" in (await lines.event()).event.params


async def test_a_resource_is_watched_at_its_owner(two: Two) -> None:
    ingress, owner = two
    owner.peer.capabilities = {"resources": {"subscribe": True}}
    asked = event_pb2.WatchResourceRequest(server="one", uri="file:///x")
    async with reading(ingress, "WatchResource", asked) as updates:
        while not (update := await updates.next()).HasField("update"):
            pass
        assert update.update.uri == "file:///x"


async def test_a_slow_reader_holds_up_its_own_stream_only(two: Two) -> None:
    ingress, owner = two
    async with reading(ingress, "WatchEvents", event_pb2.WatchEventsRequest()) as events:
        await events.next()
        large = "x" * 200_000
        (watcher,) = owner.hub.events._watchers
        while not watcher.buffer.dropped:  # nobody reads: what waits is bounded
            say(owner, "one", large)
            await anyio.sleep(0)
        assert (await ingress.api(CALL, call())).call.result
        while not (response := await events.event()).dropped:
            pass
        assert response.event.server == "one"


async def test_a_watcher_of_calls_sees_the_progress_of_a_call_at_another_member(two: Two) -> None:
    ingress, owner = two
    owner.peer.behaviour = never
    async with reading(ingress, "WatchCalls", call_pb2.WatchCallsRequest()) as steps:
        while (await steps.next()).WhichOneof("event") != "synced":
            pass
        await ingress.api(RPCS["StartCall"], call_pb2.StartCallRequest(spec=spec(call_id="slow")))
        await known(ingress, "slow", CallState.IN_PROGRESS)
        await until(lambda: bool(owner.peer.sent))
        owner.peer.sent[0].progress(1, 2, "half")
        while (step := await steps.next()).WhichOneof("event") != "progress":
            pass
        assert (step.progress.call_id, step.progress.progress, step.progress.message) == ("slow", 1, "half")


async def test_a_caller_that_follows_its_call_hears_of_progress_from_the_beginning(two: Two) -> None:
    ingress, owner = two
    go = anyio.Event()

    async def tells(sent: Sent) -> Outcome:
        sent.progress(1, 2)
        await go.wait()
        return {"done": True}

    owner.peer.behaviour = tells
    async with streamed(ingress.api.channel, AUTHORIZED) as calls:
        await calls.say(begin(1, spec(call_id="followed"), follow=True))
        while not (step := await calls.next()).HasField("progress"):
            pass
        assert step.progress.total == 2
        go.set()
        while not (step := await calls.next()).HasField("completed"):
            pass


async def test_what_members_tell_each_other_is_not_told_again(two: Two) -> None:
    """Both watch calls; each hears of a progress once."""
    ingress, owner = two
    owner.peer.behaviour = never
    heard: list[tuple[str, object]] = []
    await owner.api(RPCS["StartCall"], call_pb2.StartCallRequest(spec=spec(call_id="slow")))
    await known(ingress, "slow", CallState.IN_PROGRESS)
    with (
        ingress.hub.calls.listen("slow", lambda _, told: heard.append(("a", told)) if told else None),
        owner.hub.calls.listen("slow", lambda _, told: heard.append(("b", told)) if told else None),
    ):
        await until(lambda: len(owner.hub.calls.live._followers) == 1 == len(ingress.hub.calls.live._followers))
        owner.peer.sent[0].progress(1)
        await until(lambda: len(heard) >= 2)
        await asyncio.sleep(0.2)
    assert [who for who, _ in heard] == ["b", "a"]


async def test_a_log_message_about_a_call_is_heard_too(two: Two) -> None:
    ingress, owner = two
    owner.peer.behaviour = never
    heard: list[object] = []
    await ingress.api(RPCS["StartCall"], call_pb2.StartCallRequest(spec=spec(call_id="slow")))
    await known(ingress, "slow", CallState.IN_PROGRESS)
    with ingress.hub.calls.listen("slow", lambda _, told: heard.append(told) if told else None):
        await until(lambda: len(owner.hub.calls.live._followers) == 1)
        owner.hub.calls.publish_log("slow", {"level": "info", "data": "x"})
        await until(lambda: bool(heard))
    assert heard == [LogEvent("slow", b'{"level":"info","data":"x"}')]


async def test_of_what_a_member_does_not_read_the_newest_progress_counts_and_log_messages_are_dropped() -> None:
    table = Told()
    live_calls = LiveCalls(table)  # type: ignore[arg-type]
    owned = Believed("b")
    owned.owners["one"] = Owner("b", 1, "")
    async with aclosing(stream_live_events(live_calls, owned)) as responses:
        assert (await anext(responses)).WhichOneof("told") is None
        live_calls.publish(replace(CALL_RECORD, server="another member's"), LogEvent("x", b"never"))
        for number in range(MAX_WAITING + 10):
            live_calls.publish(CALL_RECORD, LogEvent("x", b"%d" % number))
            live_calls.publish(CALL_RECORD, ProgressEvent("x", number, None, None))
        said = [await anext(responses) for _ in range(MAX_WAITING)]
    logs = [response.log.params for response in said if response.HasField("log")]
    (progress,) = [response.progress.progress for response in said if response.HasField("progress")]
    assert (len(logs), progress, logs[0]) == (MAX_WAITING - 1, MAX_WAITING + 9, b"0")


async def test_the_progress_of_calls_that_a_member_does_not_read_is_bounded() -> None:
    live_calls = LiveCalls(Told())  # type: ignore[arg-type]
    owned = Believed("b")
    owned.owners["one"] = Owner("b", 1, "")
    async with aclosing(stream_live_events(live_calls, owned)) as responses:
        await anext(responses)
        for number in range(MAX_WAITING + 2):
            live_calls.publish(replace(CALL_RECORD, id=f"{number}"), ProgressEvent(f"{number}", 1, None, None))
        said = [(await anext(responses)).progress.call_id for _ in range(MAX_WAITING)]
    assert said == [f"{number}" for number in range(2, MAX_WAITING + 2)]


def test_progress_that_comes_before_its_call_is_published_with_it() -> None:
    table = Told()
    live_calls = LiveCalls(table)  # type: ignore[arg-type]
    for number in range(MAX_EARLY + 1):
        live_calls.publish_remote(ProgressEvent(f"{number}", 1, None, None))
    live_calls.publish_remote(ProgressEvent("1", 2, None, None))
    live_calls.publish_remote(LogEvent("1", b"{}"))  # nobody knows what it is about
    for call_id in ("0", "1"):
        table.add(replace(CALL_RECORD, id=call_id))
    assert table.published == [ProgressEvent("1", 2, None, None)]


CALL_RECORD = Call(
    id="x",
    server="one",
    method="tools/call",
    params=b"{}",
    principal="ann",
    detached=False,
    timeout_s=1.0,
    max_s=1.0,
    created_at=0.0,
)


class Told:
    """The table of calls, as far as live events need it."""

    def __init__(self) -> None:
        self.feed = self
        self.watched = False
        self.published: list[object] = []
        self.records: dict[str, Call] = {}
        self._follow: list[Any] = []

    def publish_live(self, _id: str, _record: Call, _key: object, event: object) -> None:
        self.published.append(event)

    def record(self, call_id: str) -> Call | None:
        return self.records.get(call_id)

    def follow(self, tell: Any) -> None:
        self._follow.append(tell)

    def add(self, call: Call) -> None:
        self.records[call.id] = call
        for tell in self._follow:
            tell(None, call)


async def test_a_watch_of_events_that_this_member_refuses_is_refused(two: Two) -> None:
    ingress, _ = two
    ingress.hub._ledger.watcher_limit.limit = 0
    refused = await ingress.api.refused(RPCS["WatchEvents"], event_pb2.WatchEventsRequest())
    assert refused.reason == "TOO_MANY_WATCHERS"


async def test_a_watch_of_events_ends_with_that_of_this_member(two: Two) -> None:
    ingress, _ = two
    async with reading(ingress, "WatchEvents", event_pb2.WatchEventsRequest()) as events:
        await events.next()
        ingress.hub.events.close()
        with refusing("SHUTTING_DOWN"):
            await events.next()


async def test_a_log_without_lines_is_empty_at_another_member_too(two: Two) -> None:
    ingress, _ = two
    method = RPCS["TailLogs"]
    path = f"/{method.containing_service.full_name}/{method.name}"
    raw = event_pb2.TailLogsRequest(server="one").SerializeToString()
    assert [line async for line in ingress.api.channel.unary_stream(path)(raw, metadata=ingress.api.metadata)] == []


async def test_events_that_several_members_have_dropped_are_counted_together() -> None:
    """Over streams that end and begin again, the number never falls."""
    streams: list[asyncio.Queue[tuple[int, str] | None]] = []

    async def said(queue: asyncio.Queue[tuple[int, str] | None]) -> AsyncGenerator[bytes]:
        while (step := await queue.get()) is not None:
            event = event_pb2.ServerEvent(server=step[1]) if step[1] else None
            yield event_pb2.WatchEventsResponse(event=event, dropped=step[0]).SerializeToString()

    async def at(_owner: Owner) -> AsyncGenerator[bytes]:
        streams.append(asyncio.Queue())
        streams[-1].put_nowait((0, ""))
        return said(streams[-1])

    believed, here = Believed("a"), asyncio.Queue[tuple[int, str] | None]()
    believed.members = [Owner("b", 1, "")]
    watch = MergedEvents(believed, OwnershipChanges(believed)).merge(said(here), at)
    async with aclosing(watch):
        told: list[tuple[int, str]] = []

        async def hear() -> None:
            response = event_pb2.WatchEventsResponse.FromString(await anext(watch))
            told.append((response.dropped, response.event.server))

        for queue, step in ((here, (2, "")), (here, (2, "x"))):
            queue.put_nowait(step)
            await hear()
        streams[0].put_nowait((3, "y"))
        await hear()
        streams[0].put_nowait(None)  # the stream ends, and another one begins
        await hear()
        streams[1].put_nowait((1, "z"))
        await hear()
        here.put_nowait((2, ""))
        await hear()
    assert told == [(2, ""), (2, "x"), (5, "y"), (6, ""), (7, "z"), (7, "")]
