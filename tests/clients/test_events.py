"""Events, logs and watched resources, in the library and on the command line."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

import hubbub_client
from hubbub.v1 import call_pb2, event_pb2, server_pb2
from hubbub_client.data.specs import roots_message

LIMIT_S = 60


def event(number: int, **more: Any) -> event_pb2.ServerEvent:
    it = event_pb2.ServerEvent(
        server="one",
        kind=event_pb2.EVENT_KIND_LOG,
        method="notifications/message",
        params=b'{"level": "info", "data": "line %d"}' % number,
        **more,
    )
    it.occurred_at.FromSeconds(1_700_000_000 + number)
    return it


def scripted(hub: Any, rpc: str, *streams: list[Any]) -> None:
    """Each time the stream is opened it gives the next of these; the last one stays open."""
    left = list(streams)

    async def stream(_: Any) -> AsyncIterator[Any]:
        responses = left.pop(0)
        for response in responses:
            yield response
        if not left:
            await anyio.sleep_forever()

    hub.streams[rpc] = stream


async def taken(events: Any, count: int) -> list[Any]:
    found: list[Any] = []
    with anyio.fail_after(LIMIT_S):
        async for each in events:
            found.append(each)
            if len(found) == count:
                break
    await events.aclose()
    return found


async def test_events_go_on_after_a_break_and_what_was_lost_is_told(hub: Any) -> None:
    response = event_pb2.WatchEventsResponse
    scripted(
        hub,
        "WatchEvents",
        [response(), response(event=event(1)), response(event=event(2), dropped=3)],
        [response(), response(event=event(3)), response(event=event(4), dropped=1)],
    )
    listening: list[str] = []
    dropped: list[int] = []
    async with hubbub_client.connect(data_dir=hub.data_dir) as client:
        watch = client.events.watch(
            server="one", kinds=["log"], on_listening=lambda: listening.append(""), on_dropped=dropped.append
        )
        found = await taken(watch, 4)
    assert [each.params["data"] for each in found] == [f"line {n}" for n in (1, 2, 3, 4)]
    assert found[0].kind == "log"
    assert (len(listening), dropped) == (2, [3, 1])
    (request, _) = hub.requests("WatchEvents")
    assert (request.filter.server, list(request.filter.kinds)) == ("one", [event_pb2.EVENT_KIND_LOG])


async def test_lines_that_were_shown_before_a_break_are_not_shown_again(hub: Any) -> None:
    response = event_pb2.TailLogsResponse
    lines = [response(event=event(n)) for n in (1, 2, 2, 3)]
    scripted(hub, "TailLogs", lines[:3], [*lines[1:], response(event=event(4))])
    async with hubbub_client.connect(data_dir=hub.data_dir) as client:
        found = await taken(client.events.follow_logs("one"), 5)
    assert [each.params["data"] for each in found] == [f"line {n}" for n in (1, 2, 2, 3, 4)]


async def test_a_refused_subscription_is_not_tried_again(hub: Any, refusal: Any) -> None:
    async def refuse(_: Any) -> AsyncIterator[Any]:
        raise refusal("UNKNOWN", "SERVER_ERROR", "no such resource")
        yield

    hub.streams["WatchResource"] = refuse
    async with hubbub_client.connect(data_dir=hub.data_dir) as client:
        with pytest.raises(hubbub_client.UpstreamError, match="no such resource"):
            await taken(client.subscribe("one", "x://y"), 1)
    assert len(hub.requests("WatchResource")) == 1


async def test_a_log_is_printed_line_by_line_without_what_would_steer_the_terminal(
    hub: Any, hubbub: Callable[..., Any]
) -> None:
    stderr = event_pb2.ServerEvent(
        server="one",
        kind=event_pb2.EVENT_KIND_STDERR,
        params=rb'{"line": "red \u001b[31m"}',
        occurred_at=event(1).occurred_at,
    )

    async def lines(_: Any) -> AsyncIterator[Any]:
        for each in (event(1), stderr):
            yield event_pb2.TailLogsResponse(event=each)

    hub.streams["TailLogs"] = lines
    ran = await hubbub("logs", "one", json=False)
    assert ran.status == 0, ran.err
    first, second = ran.out.splitlines()
    assert first.endswith("info  line 1")
    assert second.endswith("red \N{REPLACEMENT CHARACTER}[31m")
    rows = (await hubbub("logs", "one")).lines
    assert rows[1] == {
        "server": "one",
        "kind": "stderr",
        "params": {"line": "red \x1b[31m"},
        "method": None,
        "call_id": None,
        "at": "2023-11-14T22:13:21Z",
    }


RESULTS: dict[tuple[str, ...], tuple[bytes, str]] = {
    ("read", "one", "x://y"): (
        b'{"contents": [{"uri": "x://y", "text": "a\\nb"}, {"uri": "x://z", "mimeType": "image/png", "blob": "AAEC"}]}',
        "a\nb\n[x://z: image/png, 3 bytes; --json shows them in base64]\n",
    ),
    ("prompt", "one", "p"): (
        (
            b'{"description": "What", "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}},'
            b'{"role": "user", "content": {"type": "audio", "mimeType": "audio/wav", "data": "AA=="}},'
            b'{"role": "user", "content": {"type": "resource", "resource": {"uri": "x://y", "text": "in it"}}},'
            b'{"role": "user", "content": {"type": "resource_link", "uri": "x://y", "name": "y"}}]}'
        ),
        (
            "What\nuser: hi\nuser: [audio: audio/wav, 1 bytes; --json shows them in base64]\nuser: in it\n"
            "user: [link to x://y]\n"
        ),
    ),
    ("complete", "one", "a", "--prompt", "p"): (
        b'{"completion": {"values": ["x", "y"], "total": 3}}',
        "x\ny\n...\n",
    ),
}


@pytest.mark.parametrize("words", RESULTS, ids=lambda words: words[0])
async def test_a_result_is_text_for_people_and_all_of_it_for_programs(
    hub: Any, hubbub: Callable[..., Any], words: tuple[str, ...]
) -> None:
    result, text = RESULTS[words]

    def done(request: Any) -> Any:
        call = call_pb2.Call(id=request.spec.call_id, server="one", state=call_pb2.CALL_STATE_COMPLETED, result=result)
        return call_pb2.CallMethodResponse(call=call)

    async def watch(_: Any) -> AsyncIterator[Any]:
        yield call_pb2.WatchCallsResponse(synced={})
        ended = call_pb2.Call(id="c", server="one", state=call_pb2.CALL_STATE_COMPLETED)
        yield call_pb2.WatchCallsResponse(upsert=ended)
        await anyio.sleep_forever()

    hub.replies["CallMethod"] = done
    hub.streams["WatchCalls"] = watch
    ran = await hubbub(*words, json=False)
    assert (ran.status, ran.out) == (0, text), ran.err
    assert (await hubbub(*words)).lines == [hubbub_client.payload.loads(result)]


async def test_roots_are_shown_and_set(hub: Any, hubbub: Callable[..., Any]) -> None:
    hub.replies["GetRoots"] = lambda _: server_pb2.GetRootsResponse(roots=roots_message("ask"))
    hub.replies["SetRoots"] = lambda request: server_pb2.SetRootsResponse(roots=request.roots)
    assert (await hubbub("roots", "one", json=False)).out == "ask\n"
    given = '[{"uri": "file:///x", "name": "x"}]'
    assert (await hubbub("roots", "one", "set", given, json=False)).out == "file:///x  x\n"
    await hubbub("roots", "one", "set", "configured")
    first, last = hub.requests("SetRoots")
    assert first.roots == roots_message([{"uri": "file:///x", "name": "x"}])
    assert not last.HasField("roots")
    for words in (["set"], ["list", "[]"], ["set", "{}"], ["set", "nonsense"], ["drop"]):
        assert (await hubbub("roots", "one", *words)).status == 2
