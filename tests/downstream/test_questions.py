"""What a server asks in the course of a host's call, in all four cells of revisions."""

import asyncio
from itertools import product
from typing import Any

import pytest

from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept, Result
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.downstream import QuestionPolicy
from hubbubd.downstream.views.question_policy import Asked
from hubbubd.upstream.ports import Era, ReplyError

from ..runtime.conftest import FORM, SAMPLING, World, question, server, settle, until
from ..runtime.peer import Outcome, Sent
from .scripted import ME, answering, asks, connected, host_at

URL = {"mode": "url", "message": "Visit", "url": "https://example.com/", "elicitationId": "theirs"}
QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "form": ("elicitation/create", FORM),
    "url": ("elicitation/create", URL),
    "sampling": ("sampling/createMessage", SAMPLING),
    "roots": ("roots/list", {}),
}
SAID = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}
ANSWERS: dict[str, dict[str, Any]] = {
    "form": {"action": "accept", "content": {"name": "x"}},
    "url": {"action": "accept"},
    "sampling": SAID,
    "roots": {"roots": [{"uri": "file:///srv"}]},
}
IMPATIENT = server(answer_timeout_s=100, auto_reject_on_timeout=True, roots="ask")
DONE = [{"type": "text", "text": "done"}]
CELLS = list(product(Era, Era))
METHODS: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "t"},
    "prompts/get": {"name": "p"},
    "resources/read": {"uri": "x://y"},
}


def everywhere(asked: Asked) -> QuestionPolicy:
    """The same for each kind."""
    return QuestionPolicy(form=asked, url=asked, sampling=asked, roots=asked)


@pytest.mark.parametrize(("of_host", "of_server"), CELLS)
@pytest.mark.parametrize("kind", QUESTIONS)
@pytest.mark.parametrize("method", METHODS)
async def test_what_the_host_answers_reaches_the_server(
    world: World, of_host: Era, of_server: Era, kind: str, method: str
) -> None:
    got = asks(world, of_server, QUESTIONS[kind])
    async with connected(world) as hub:
        host = host_at(hub, of_host, answering(ANSWERS[kind]))
        response = await host.call(method, **METHODS[method])
        assert response["result"]["content"] == DONE
        assert got == [ANSWERS[kind]]
        assert [asked[0] for asked in host.asked] == [QUESTIONS[kind][0]]
        (record,) = hub.inbox.select(RequestFilter())
        assert (record.state, record.answered_by) == (RequestState.ANSWERED, ME)
        assert [moment.via for moment in record.moments if moment.what == "answered"] == ["a-host 1.2"]


@pytest.mark.parametrize(("of_host", "of_server"), CELLS)
@pytest.mark.parametrize("kind", QUESTIONS)
@pytest.mark.parametrize("method", METHODS)
async def test_what_the_inbox_answers_reaches_the_server_while_the_host_still_asks(
    world: World, of_host: Era, of_server: Era, kind: str, method: str
) -> None:
    got = asks(world, of_server, QUESTIONS[kind])
    async with connected(world) as hub:
        host = host_at(hub, of_host, answering(ANSWERS[kind], after_s=60), policy=everywhere("both"))
        call = asyncio.create_task(host.call(method, **METHODS[method]))
        asked = await question(hub)
        await until(lambda: host.asked)
        await hub.inbox.answer(asked.id, Result(ANSWERS[kind]), "alice", answer_id=None, claim_id=None)
        assert (await call)["result"]["content"] == DONE
        assert got == [ANSWERS[kind]]
        assert hub.inbox.get(asked.id).answered_by == "alice"
        if of_host is Era.HANDSHAKE:
            assert "notifications/cancelled" in [told[0] for told in host.told]


async def test_a_host_is_told_at_once_what_others_have_answered(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        await sent.ask(*QUESTIONS["form"]).answered()
        await asyncio.sleep(60)
        return {"content": DONE}

    world.peer.behaviour = behaviour
    async with connected(world) as hub:
        host = host_at(hub)
        call = asyncio.create_task(host.call())
        asked = await question(hub)
        await until(lambda: host.asked)
        await hub.inbox.answer(asked.id, Accept({"name": "x"}), "alice", answer_id=None, claim_id=None)
        await settle(1)
        assert [told[0] for told in host.told] == ["notifications/cancelled"]
        assert not call.done()
        await call


@pytest.mark.parametrize(("of_host", "of_server"), CELLS)
@pytest.mark.parametrize("kind", ["form", "url"])
@pytest.mark.parametrize("method", METHODS)
async def test_a_person_at_the_host_may_decline(
    world: World, of_host: Era, of_server: Era, kind: str, method: str
) -> None:
    got = asks(world, of_server, QUESTIONS[kind])
    async with connected(world) as hub:
        host = host_at(hub, of_host, answering({"action": "decline"}))
        response = await host.call(method, **METHODS[method])
        assert response["result"]["content"] == DONE
        assert got == [{"action": "decline"}]


@pytest.mark.parametrize("of_server", Era)
@pytest.mark.parametrize("kind", ["sampling", "roots"])
@pytest.mark.parametrize("method", METHODS)
async def test_a_host_that_refuses_to_generate_or_to_name_folders_leaves_it_to_the_inbox(
    world: World, of_server: Era, kind: str, method: str
) -> None:
    got = asks(world, of_server, QUESTIONS[kind])
    async with connected(world) as hub:
        host = host_at(hub, Era.HANDSHAKE, answering(ValueError("not allowed")))
        call = asyncio.create_task(host.call(method, **METHODS[method]))
        asked = await question(hub)
        await settle(30)
        assert (got, len(host.asked)) == ([], 1)
        await hub.inbox.answer(asked.id, Result(ANSWERS[kind]), "alice", answer_id=None, claim_id=None)
        assert (await call)["result"]["content"] == DONE
        assert got == [ANSWERS[kind]]


@pytest.mark.parametrize(("of_host", "of_server"), CELLS)
@pytest.mark.parametrize("kind", ["sampling", "roots"])
@pytest.mark.parametrize("method", METHODS)
async def test_what_cannot_be_cancelled_and_nobody_answers_in_time_is_an_error(
    world: World, of_host: Era, of_server: Era, kind: str, method: str
) -> None:
    got = asks(world, of_server, QUESTIONS[kind])
    async with connected(world, IMPATIENT) as hub:
        host = host_at(hub, of_host, answering(ANSWERS[kind], after_s=1000))
        response = await host.call(method, **METHODS[method])
        if of_server is Era.HANDSHAKE:  # it hears so, and goes on
            assert [type(each) for each in got] == [ReplyError]
            assert response["result"]["content"] == DONE
        else:  # a round has no place for an error
            assert (got, response["error"]["data"]["reason"]) == ([], "INPUT_REFUSED")


@pytest.mark.parametrize(("of_host", "of_server"), CELLS)
@pytest.mark.parametrize("kind", QUESTIONS)
async def test_a_host_that_did_not_declare_a_kind_is_not_asked(
    world: World, of_host: Era, of_server: Era, kind: str
) -> None:
    got = asks(world, of_server, QUESTIONS[kind])
    async with connected(world) as hub:
        host = host_at(hub, of_host, capabilities={}, policy=everywhere("both"))
        call = asyncio.create_task(host.call())
        asked = await question(hub)
        await hub.inbox.answer(asked.id, Result(ANSWERS[kind]), "alice", answer_id=None, claim_id=None)
        assert (await call)["result"]["content"] == DONE
        assert (got, host.asked) == ([ANSWERS[kind]], [])


async def test_a_page_has_an_id_of_the_hub_and_is_told_complete_when_the_call_goes_on(world: World) -> None:
    asks(world, Era.STATELESS, QUESTIONS["url"])
    async with connected(world) as hub:
        host = host_at(hub, Era.HANDSHAKE, answering({"action": "accept"}))
        await host.call()
        (record,) = hub.inbox.select(RequestFilter())
        assert host.asked == [("elicitation/create", {**URL, "elicitationId": record.id})]
        assert ("notifications/elicitation/complete", {"elicitationId": record.id}) in host.told


async def test_a_page_is_told_complete_when_its_server_says_so(world: World) -> None:
    told: list[int] = []

    async def behaviour(sent: Sent) -> Outcome:
        await sent.ask(*QUESTIONS["url"]).answered()
        for name in ("other", "theirs"):
            told.append(len(host.told))
            sent.link.tell("notifications/elicitation/complete", {"elicitationId": name})
            await asyncio.sleep(1)
        return {"content": DONE}

    world.peer.behaviour = behaviour
    async with connected(world) as hub:
        host = host_at(hub, Era.HANDSHAKE, answering({"action": "accept"}))
        await host.call()
        (record,) = hub.inbox.select(RequestFilter())
        assert host.asked == [("elicitation/create", {**URL, "elicitationId": record.id})]
        assert host.told == [("notifications/elicitation/complete", {"elicitationId": record.id})]
        assert told == [0, 0]


@pytest.mark.parametrize("of_host", Era)
async def test_the_message_begins_with_the_servers_name_where_there_are_several(world: World, of_host: Era) -> None:
    asks(world, Era.HANDSHAKE, QUESTIONS["form"])
    async with connected(world) as hub:
        host = host_at(hub, of_host, answering(ANSWERS["form"]), policy=QuestionPolicy(names_server=True))
        await host.call()
        assert [asked[1]["message"] for asked in host.asked] == ["one asks: Which one?"]


@pytest.mark.parametrize("asked_by", ["both", "host-first", "host"])
async def test_after_eight_rounds_a_call_waits_for_the_inbox(world: World, asked_by: Asked) -> None:
    got = asks(world, Era.HANDSHAKE, *[QUESTIONS["form"]] * 9)
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS, answering(ANSWERS["form"]), policy=everywhere(asked_by))
        call = asyncio.create_task(host.call())
        await until(lambda: len(got) == 8)
        asked = await question(hub)
        await settle(100)
        assert len(host.asked) == 8
        await hub.inbox.answer(asked.id, Accept({"name": "y"}), "alice", answer_id=None, claim_id=None)
        assert (await call)["result"]["content"] == DONE
        assert len(got) == 9


async def test_a_host_hears_a_question_at_once_and_what_is_asked_later_is_another_round(world: World) -> None:
    shown = asyncio.Event()

    async def behaviour(sent: Sent) -> Outcome:
        first = sent.ask(*QUESTIONS["form"], on_wire=True)
        await shown.wait()
        second = sent.ask(*QUESTIONS["sampling"], on_wire=True)
        await first.answered()
        await second.answered()
        return {"content": DONE}

    world.peer.behaviour = behaviour
    async with connected(world) as hub:

        async def person(method: str, _params: dict[str, Any]) -> dict[str, Any]:
            shown.set()
            return SAID if method == "sampling/createMessage" else ANSWERS["form"]

        host = host_at(hub, Era.STATELESS, person)
        assert (await host.call())["result"]["content"] == DONE
        assert (len(host.asked), len(host.states)) == (2, 2)
