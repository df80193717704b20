"""What servers tell, as one browser sees it: bounded, and what is lost is counted."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, cast

import anyio
import pytest
from playwright.async_api import expect

from hubbub_client.data.records import ServerEvent
from hubbub_client.hub import Hub
from hubbub_web.records import event_stream
from hubbub_web.records.event_stream import EventStream

from ..e2e.conftest import LIMIT_S, POLL_S, RunningHub
from .conftest import PEERS, Bridge, Person


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub with two servers that tell."""
    telling = {"command": sys.executable, "args": [str(PEERS / "telling_server.py")], "protocol": "2025-11-25"}
    return await start_shared_hub({"one": telling, "two": telling}, connected=True)


async def say(hub: RunningHub, server: str, text: str) -> None:
    """Has a server log a text."""
    await hub.client.call_tool(server, "say", {"text": text})


async def heard(hub: RunningHub, ada: Person, server: str, text: str) -> None:
    """Has a server log a text until the page, which may just have begun to listen, shows it."""
    with anyio.fail_after(LIMIT_S):
        while not await ada.page.locator("summary", has_text=text).count():
            await say(hub, server, text)
            await anyio.sleep(POLL_S)


async def test_events_are_live_and_picked_out_by_server_kind_and_words(hub: RunningHub, ada: Person) -> None:
    await ada.page.get_by_role("link", name="Events").click()
    main = ada.page.locator("main")
    await expect(main.get_by_text("No events yet")).to_be_visible()
    await heard(hub, ada, "one", "first <b>words</b>")
    await heard(hub, ada, "two", "other words")
    await main.get_by_label("All servers").select_option("two")
    await expect(main.locator("summary", has_text="first")).to_have_count(0)
    await heard(hub, ada, "two", "second words")
    await main.get_by_label("All kinds").select_option("cancelled")
    await expect(main.locator("summary")).to_have_count(0)
    await main.get_by_label("All kinds").select_option("log")
    await main.get_by_role("searchbox").fill("second")
    await expect(main.locator("summary").first).to_contain_text("info: second words")
    await expect(main.locator("summary", has_text="other")).to_have_count(0)
    await main.locator("summary").first.click()
    await expect(main.locator("details[open] .code")).to_contain_text('"data": "second words"')


async def test_a_paused_page_stands_still_and_counts(hub: RunningHub, ada: Person) -> None:
    await ada.go("events/one")
    main = ada.page.locator("main")
    await expect(main.get_by_label("All servers")).to_have_value("one")
    await heard(hub, ada, "one", "before")
    # It may have been said more than once: what is said after that is shown when all of it is.
    await say(hub, "one", "the last of these")
    await expect(main.locator("summary", has_text="the last of these")).to_be_visible()
    await main.get_by_role("button", name="Pause").click()
    await say(hub, "one", "meanwhile")
    await expect(main.get_by_role("status")).to_contain_text("paused, 1 more since")
    await expect(main.locator("summary", has_text="meanwhile")).to_have_count(0)
    await main.get_by_role("button", name="Go on").click()
    await expect(main.locator("summary").first).to_contain_text("meanwhile")
    await main.get_by_role("button", name="Clear").click()
    await expect(main.locator("summary")).to_have_count(0)


async def test_a_server_that_does_not_exist_is_said_to_be_unknown(ada: Person) -> None:
    await ada.go("events/nobody")
    await expect(ada.page.locator("main .problem")).to_contain_text("nobody")


async def test_only_who_is_logged_in_listens_and_only_to_what_there_is(
    hub: RunningHub, start_bridge: Callable[..., Any]
) -> None:
    bridge: Bridge = await start_bridge(hub)
    assert (await bridge.post("events")).status_code == 401
    await bridge.login()
    wrong = await bridge.post("events", {"kind": "gossip"})
    assert (wrong.status_code, wrong.json()["error"]["violations"]) == (400, [["kind", "is not known"]])


class Flood:
    """A hub that tells more than anybody reads, and then no more. It also lost some by itself."""

    def __init__(self, count: int, lost: int) -> None:
        self.events = self
        self._count = count
        self._lost = lost
        self.told = anyio.Event()

    async def watch(self, *, on_listening: Any, on_dropped: Any, **_: Any) -> AsyncIterator[ServerEvent]:
        on_listening()
        for number in range(self._count):
            params = {"data": "x" * 10_000 if number == self._count - 1 else number}
            at = datetime.now(UTC)
            yield ServerEvent(server="s", kind="log", params=params, method=None, call_id=None, at=at)
        on_dropped(self._lost)
        on_listening()  # over another connection, which counts from zero
        on_dropped(1)
        self.told.set()
        await anyio.sleep_forever()


async def test_who_reads_slowly_gets_the_last_events_shortened_and_is_told_how_many_are_lost() -> None:
    hub = Flood(event_stream.MAX_WAITING + 7, lost=3)
    stream = EventStream(cast("Hub", hub), None, None)
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as group:
            group.start_soon(stream.follow)
            await hub.told.wait()
            lines = stream.lines()
            read = [json.loads(line) for line in (await anext(lines)).splitlines()]
            await lines.aclose()
            group.cancel_scope.cancel()
    assert len(read) == event_stream.MAX_WAITING + 1
    assert read[0]["event"]["params"] == {"data": 7}
    assert len(read[-2]["event"]["params"]["shortened"]) == event_stream.MAX_PARAMS_CHARS
    assert read[-1] == {"dropped": 11}


async def test_a_stream_ends_at_once_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT_S", 10 * LIMIT_S)
    stream = EventStream(cast("Hub", None), None, None)
    with anyio.fail_after(LIMIT_S):
        lines = stream.lines()
        assert json.loads(await anext(lines)) == {"dropped": 0}
        async with anyio.create_task_group() as group:
            group.start_soon(_close_soon, stream)
            assert [line async for line in lines] == []


async def _close_soon(stream: EventStream) -> None:
    """Closes a stream once its reader waits."""
    await anyio.wait_all_tasks_blocked()
    stream.close()
