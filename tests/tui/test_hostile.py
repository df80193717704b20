"""What servers write is shown and not obeyed, however much it is."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from hubbub.v1 import common_pb2, inbox_pb2
from hubbub_frontend.display.text import render_url

from ..clients.conftest import ScriptedHub, hub, staying
from .conftest import RunningHub, at_terminal, peer

__all__ = ["hub"]

StartHub = Callable[..., Any]
FLOOD = 10_000


@pytest.fixture(scope="module")
async def hostile(start_shared_hub: StartHub) -> RunningHub:
    """A hub with a hostile server."""
    return await start_shared_hub({"hostile": peer("hostile_server.py")}, connected=True)


async def test_markup_control_characters_and_turned_text_are_only_shown(hostile: RunningHub) -> None:
    await hostile.client.start_tool("hostile", "markup")
    trick = "[bold red]\N{REPLACEMENT CHARACTER}gnp.exe[/]"
    async with at_terminal(hostile, size=(120, 50)) as ann:
        shown = await ann.sees(trick, "<script>alert(1)</script>")
        await ann.press("enter")
        shown += await ann.sees(trick, "[@click=app.quit]click[/]", "Leave open")
        await ann.press("ctrl+s")
        await ann.sees("Nothing waits for you")
        for pane, seen in (("2", '"name": '), ("3", "Result"), ("5", trick), ("6", "events")):
            await ann.press(pane)
            shown += await ann.sees(seen)
    assert not {each for each in shown if not each.isprintable()} - {"\n"}


async def test_a_page_that_looks_like_another_is_warned_of(hostile: RunningHub) -> None:
    await hostile.client.start_tool("hostile", "look_alike")
    async with at_terminal(hostile, size=(100, 30)) as ann:
        await ann.sees("xn--exmple-cua.com")
        await ann.press("enter")
        await ann.sees(
            "https://user@xn--exmple-cua.com:8443/login?next=https://example.com",
            "its letters may only look like those of a name you know",
            "what stands before the @ is not where it leads: that is xn--exmple-cua.com",
        )
        await ann.press("f8")
        await ann.sees("Nothing waits for you")


def test_characters_that_do_not_belong_into_an_address_are_shown_by_their_numbers() -> None:
    shown = render_url("http://example.com/\u202etxt\x1b[31m").plain
    assert shown.startswith(r"http://example.com/\u202etxt\u001b[31m")
    assert "characters that urls do not have" in shown
    assert "not https" in shown


async def test_an_enormous_form_is_answered_as_json(hostile: RunningHub) -> None:
    call = await hostile.client.start_tool("hostile", "enormous")
    async with at_terminal(hostile) as ann:
        await ann.sees("An enormous form")
        await ann.press("enter")
        await ann.sees("This form is too large to be shown; answer it as JSON.")
        await ann.press("f7", "delete")
        await ann.types('{"field 7": "seven"}')
        await ann.press("ctrl+s")
        await ann.sees("Nothing waits for you")
    assert (await hostile.call(call.id)).result["content"][0]["text"] == (
        '{"action": "accept", "content": {"field 7": "seven"}}'
    )


async def test_ten_thousand_questions_are_counted_and_do_not_freeze_the_screen(hub: ScriptedHub) -> None:
    """They come as fast as gRPC carries them, from a hub that does nothing else."""
    form = b'{"message": "A question", "requestedSchema": {}}'
    shown = inbox_pb2.PendingRequest(server="s", kind=1, state=inbox_pb2.PENDING_REQUEST_STATE_OPEN, request=form)
    again = anyio.Event()

    async def flood(_: Any) -> AsyncIterator[Any]:
        for number in range(FLOOD):
            shown.id = f"r{number}"
            yield inbox_pb2.WatchPendingRequestsResponse(upsert=shown)
            if number == FLOOD // 2:
                await again.wait()
        yield inbox_pb2.WatchPendingRequestsResponse(synced=common_pb2.WatchSynced())
        await anyio.sleep_forever()

    silence = staying()
    for name in ("WatchServers", "WatchCalls", "WatchTasks", "WatchCatalogLists", "WatchEvents"):
        hub.streams[name] = silence
    hub.streams["WatchPendingRequests"] = flood
    hub.replies["GetPendingRequest"] = lambda request: inbox_pb2.GetPendingRequestResponse(pending_request=shown)
    async with at_terminal(hub) as ann:
        await ann.sees(f"the oldest 1000 of {FLOOD // 2 + 1} open requests")
        again.set()
        await ann.press("2")
        await ann.sees("Loading …")
        await ann.press("1")
        await ann.sees(f"the oldest 1000 of {FLOOD} open requests", f"{FLOOD} forms")
        assert len(ann.app.boards.open.rows) == 1000


async def test_hidden_questions_move_up_as_others_are_answered(hostile: RunningHub) -> None:
    await hostile.client.start_tool("hostile", "flood", {"count": 12})
    requests = await hostile.asked(12)
    async with at_terminal(hostile, size=(80, 40), max_rows=10) as ann:
        await ann.sees("the oldest 10 of 12 open requests", "A question 9")
        for request in requests[:7]:
            await request.decline()
        await ann.sees("5 open requests", "A question 11")
    for request in requests[7:]:  # nothing of it waits for the next test
        await request.decline()
