"""What every host is taken through: each kind of result, questions, tickets, restarts of the hub, a new server.

A stop of the tour returns what came of it, in words, or raises Failed.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import anyio

from .hubs import Venue
from .puppets import Failed, Puppet

CALL = re.compile(r"call_id (\w+)")
ANSWERS_ITSELF_S = 1.5
"""For so long a question is left to the host, which may answer by itself without a person."""
NOTICES_S = 60
"""Within which a host must have noticed what happened."""


@dataclass
class Visit:
    """A host at a hub."""

    venue: Venue
    host: Puppet


Stop = Callable[[Visit], Awaitable[str]]


async def list_all(visit: Visit) -> str:
    """All tools of all servers are there."""
    expected, found = await visit.venue.list_tools(), await visit.host.list_tools()
    missing = [name for name in expected if not any(each.endswith(name) for each in found)]
    if missing:
        raise Failed(f"{len(missing)} of {len(expected)} tools are not there: {', '.join(missing[:3])}")
    return f"{len(expected)} tools"


async def get_text(visit: Visit) -> str:
    """A text comes through."""
    return await _hear(visit, "tour__text", "a text of the tour", text="a text of the tour")


async def get_structure(visit: Visit) -> str:
    """An object comes through, or the text that stands for it."""
    return await _hear(visit, "tour__number", "21.5")


async def get_image(visit: Visit) -> str:
    """An image comes through as an image."""
    return await _hear(visit, "tour__picture", "image/png")


async def get_link(visit: Visit) -> str:
    """The address of a resource comes through, by which it can be read."""
    return await _hear(visit, "tour__pointer", "hubbub://s/tour/test://paper")


async def answer_question(visit: Visit) -> str:
    """A person answers a server's question while the host waits."""
    notes: list[str] = []
    heard = ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_answer, visit, notes)
        heard = await _call(visit, "tour__ask", message="Who?")
        tasks.cancel_scope.cancel()
    if "accept Ada" not in heard:
        raise Failed(f"the model heard {_shorten(heard)}")
    return "; ".join(["answered in the inbox", *notes])


async def fetch_by_ticket(visit: Visit) -> str:
    """A person answers late: the host gets a ticket, and redeems it."""
    heard = await _call(visit, "tour__ask", message="Who, in the end?")
    found = CALL.search(heard)
    if found is None:
        raise Failed(f"no ticket: {_shorten(heard)}")
    await _answer(visit, [])
    await visit.venue.hub.call(found[1])
    return await _hear(visit, "hubbub_result", "accept Ada", call_id=found[1])


async def see_added_server(visit: Visit) -> str:
    """The tools of a server that was added meanwhile are there."""
    await visit.venue.add_server("added")
    with anyio.move_on_after(NOTICES_S):
        for number in count(1):
            if any(name.endswith("added__echo") for name in await visit.host.list_tools()):
                break
            await anyio.sleep(0.5)
            # A program looks at its tools between calls, and may end when it sees the same one again and again.
            await _call(visit, "tour__text", text=f"and now? {number}")
        return await _hear(visit, "added__echo", "a new one", text="a new one")
    raise Failed("it does not see the new tools")


def go_on_after(way: str) -> Stop:
    """Return the stop at which the hub is ended between two calls."""

    async def go_on(visit: Visit) -> str:
        await visit.venue.restart(way)
        return await _hear(visit, "tour__text", f"after {way}", text=f"after {way}")

    return go_on


def end_in_call(way: str) -> Stop:
    """Return the stop at which the hub is ended in a call. The host must hear of it, and go on."""

    async def go_on(visit: Visit) -> str:
        heard: list[str] = []
        text = f"in a call, {way}"

        async def work() -> None:
            heard.append(await _call(visit, "tour__work", text=text))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await visit.venue.wait_for_work(text)
            await visit.venue.restart(way)
        if visit.venue.count_work(text) != 1:
            raise Failed(f"the tool was called {visit.venue.count_work(text)} times")
        lost = await _go_on(visit)
        return f"{_shorten(heard[0])}{lost}"

    return go_on


async def cancel_call(visit: Visit) -> str:
    """SIGINT ends the call as well."""
    running: Sequence[Any] = ()
    before = 0.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_try_to_work, visit, "cancelled")
        await visit.venue.wait_for_work("cancelled")
        before = anyio.current_time()
        visit.host.interrupt()
        running = await _wait_for_no_call(visit)
        tasks.cancel_scope.cancel()
    if running:
        await visit.venue.hub.client.calls.cancel(running[0].id, abort=True)
        raise Failed("the call goes on")
    return f"the call has ended after {anyio.current_time() - before:.1f} s"


STOPS: Mapping[str, Stop] = {
    "tools": list_all,
    "text": get_text,
    "structure": get_structure,
    "image": get_image,
    "link": get_link,
    "question": answer_question,
    "ticket": fetch_by_ticket,
    "new server": see_added_server,
    "SIGTERM": go_on_after("terminate"),
    "kill -9": go_on_after("kill"),
    "SIGTERM in a call": end_in_call("terminate"),
    "kill -9 in a call": end_in_call("kill"),
    "cancel": cancel_call,
}
"""The stops in their order, by the names that they have in the table. The last one ends the program."""

WRONG_TOKEN = "wrong token"
DIALOG = "dialog"
"""Stops that need a start of their own, the second one at a terminal."""


async def _wait_for_no_call(visit: Visit) -> Sequence[Any]:
    """Return the calls that still go on after a while."""
    calls = visit.venue.hub.client.calls
    running = await calls.list(server="tour", states=["in_progress"])
    with anyio.move_on_after(NOTICES_S):
        while running:
            await anyio.sleep(0.1)
            running = await calls.list(server="tour", states=["in_progress"])
    return running


async def _try_to_work(visit: Visit, text: str) -> None:
    try:
        await _call(visit, "tour__work", text=text)
    except Failed:
        if not visit.venue.count_work(text):
            raise


async def _go_on(visit: Visit) -> str:
    """Call until a call works; return what is to be said of those before."""
    with anyio.move_on_after(NOTICES_S):
        for lost in count():
            try:
                await _hear(visit, "tour__text", "and on", text=f"and on, {lost}")
            except Failed:
                await anyio.sleep(0.5)
                continue
            return f"; {lost} calls later it goes on" if lost else ""
    await _hear(visit, "tour__text", "and on", text="and on, at last")
    return f"; {NOTICES_S} s later it goes on"


async def _call(visit: Visit, tool: str, **arguments: Any) -> str:
    return await visit.host.call(tool, arguments)


async def _hear(visit: Visit, tool: str, expected: str, **arguments: Any) -> str:
    heard = await _call(visit, tool, **arguments)
    # Quotation marks and slashes may be escaped, once or twice.
    if expected not in heard.replace("\\", ""):
        raise Failed(f"the model heard {_shorten(heard)}")
    return _shorten(heard)


async def _answer(visit: Visit, notes: list[str]) -> None:
    """Answer the open question as a person does, once the host has had its chance."""
    client = visit.venue.hub.client
    (request,) = await visit.venue.hub.asked(server="tour")
    await anyio.sleep(ANSWERS_ITSELF_S)
    now = await client.inbox.get(request.id)
    ignored = [moment.via for moment in now.moments if moment.what == "not_counted"]
    if ignored:
        notes.append(f"what {ignored[0]} answered by itself did not count")
    if now.state == "open":
        await now.accept({"name": "Ada"})


def _shorten(text: str) -> str:
    return json.dumps(" ".join(text.split())[:160], ensure_ascii=False)
