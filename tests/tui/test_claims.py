"""How long and in which way a form claims its pending request, and what the inbox shows first: on a scripted hub."""

import gc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from hubbub.v1 import inbox_pb2
from hubbub_client.data import conversion
from hubbub_client.data.records import PendingRequest
from hubbub_tui import app
from hubbub_tui.boards import Boards
from hubbub_tui.panes.inbox import InboxPane
from hubbub_tui.screens import answer

from ..clients.conftest import Refusal, ScriptedHub, hub, staying, told
from .conftest import at_terminal

__all__ = ["hub"]

NOW = datetime.now(UTC)


def asks(key: str, words: str, age_s: float = 0, left_s: float | None = None) -> inbox_pb2.PendingRequest:
    """An open question of a server."""
    message = inbox_pb2.PendingRequest(
        id=key,
        server="one",
        kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM,
        state=inbox_pb2.PENDING_REQUEST_STATE_OPEN,
        request=b'{"message": "%b", "requestedSchema": {"type": "object", "properties": {}}}' % words.encode(),
    )
    message.created_at.FromDatetime(NOW - timedelta(seconds=age_s))
    if left_s is not None:
        message.expires_at.FromDatetime(NOW + timedelta(seconds=left_s))
    return message


def script(hub: ScriptedHub, *open_: inbox_pb2.PendingRequest) -> None:
    """Scripts a hub with these questions, and nothing else."""

    silence = staying()
    for name in ("WatchServers", "WatchCalls", "WatchTasks", "WatchCatalogLists", "WatchEvents"):
        hub.streams[name] = silence
    hub.streams["WatchPendingRequests"] = told(inbox_pb2.WatchPendingRequestsResponse, *open_)
    known = {each.id: each for each in open_}
    hub.replies["GetPendingRequest"] = lambda request: inbox_pb2.GetPendingRequestResponse(
        pending_request=known[request.id]
    )
    hub.replies["ReleasePendingRequest"] = lambda _: inbox_pb2.ReleasePendingRequestResponse()


def test_the_open_request_that_ends_first_comes_first_and_then_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    boards = Boards(None, 10)  # pyright: ignore[reportArgumentType] - nothing is asked of it
    for each in (
        asks("young", "?", age_s=1),
        asks("old", "?", age_s=9),
        asks("later", "?", age_s=5, left_s=90),
        asks("soon", "?", age_s=0, left_s=30),
    ):
        boards._put_request(conversion.read(PendingRequest, each))
    monkeypatch.setattr(InboxPane, "boards", boards)
    assert [row.key for row in InboxPane().rows()] == ["soon", "later", "old", "young"]


async def test_a_row_that_is_gone_to_is_shown_whatever_the_filter_was(hub: ScriptedHub) -> None:
    script(hub, asks("r1", "Soup or pie?"), asks("r2", "Tea?"))
    async with at_terminal(hub) as ann:
        await ann.sees("Soup or pie?", "Tea?")
        await ann.press("slash", *"pie", "enter")
        await ann.sees("1 with pie")
        ann.app.show_row("inbox", "r2")
        await ann.no_longer_sees("with pie")
        pane = ann.app.query_one(InboxPane)
        assert pane.current is not None
        assert pane.current.key == "r2"


async def test_what_json_does_not_have_is_said_and_kept_to_be_mended(hub: ScriptedHub) -> None:
    number = asks("r1", "How many?")
    number.request = b'{"message": "How many?", "requestedSchema": {"properties": {"a": {"type": "number"}}}}'
    script(hub, number)
    hub.replies["ClaimPendingRequest"] = lambda _: elsewhere()
    async with at_terminal(hub) as ann:
        await ann.sees("How many?")
        await ann.press("enter")
        await ann.sees("Leave open")
        await ann.press("ctrl+e")
        for typed in ('{"a": NaN}', "[" * 10_000):
            await ann.press("ctrl+a", "delete")
            await ann.types(typed)
            await ann.press("ctrl+s")
            await ann.sees("✗ this is not JSON", typed[:20])
    assert hub.requests("AnswerPendingRequest") == []


async def test_a_claim_is_taken_over_once_for_each_time_that_is_asked(
    hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "RETRY_CLAIM_S", 0.01)
    script(hub, asks("r1", "Soup or pie?"))
    tries = Tries(elsewhere)
    hub.replies["ClaimPendingRequest"] = tries
    async with at_terminal(hub) as ann:
        await ann.sees("Soup or pie?")
        await ann.press("enter")
        await ann.sees("f6 answers it here")
        await ann.press("f6")
        with anyio.fail_after(60):
            await tries.taken_over.wait()
            for _ in range(3):
                await tries.next()
    assert [request.take_over for request in hub.requests("ClaimPendingRequest")].count(True) == 1


async def test_an_answer_waits_for_the_claim_that_is_on_its_way_and_has_its_id(hub: ScriptedHub) -> None:
    script(hub, asks("r1", "Soup or pie?"))
    begun, let_go = anyio.Event(), anyio.Event()

    async def slow(request: inbox_pb2.ClaimPendingRequestRequest) -> inbox_pb2.ClaimPendingRequestResponse:
        begun.set()
        await let_go.wait()
        return inbox_pb2.ClaimPendingRequestResponse(pending_request=asks("r1", "Soup or pie?"))

    def answered(_: Any) -> inbox_pb2.AnswerPendingRequestResponse:
        return inbox_pb2.AnswerPendingRequestResponse(pending_request=asks("r1", "Soup or pie?"))

    hub.replies |= {"ClaimPendingRequest": slow, "AnswerPendingRequest": answered}
    async with at_terminal(hub) as ann:
        await ann.sees("Soup or pie?")
        await ann.press("enter")
        with anyio.fail_after(60):
            await begun.wait()
        await ann.press("f8")
        await ann.sees("sending")
        assert hub.requests("AnswerPendingRequest") == []
        let_go.set()
        await ann.no_longer_sees("sending")
    (claim,), (answer_,) = hub.requests("ClaimPendingRequest"), hub.requests("AnswerPendingRequest")
    assert answer_.claim_id == claim.claim_id != ""


async def leave_while_claiming(ann: Any, begun: anyio.Event) -> None:
    """Opens the question, and leaves its form once the claim has begun."""
    await ann.sees("Soup or pie?")
    await ann.press("enter")
    with anyio.fail_after(60):
        await begun.wait()
    await ann.press("escape")
    await ann.sees("1 Inbox (1)")


async def test_a_claim_that_was_on_its_way_when_its_form_was_left_is_released_once_it_is_made(
    hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "RELEASE_S", 60)  # however busy the machine is
    script(hub, asks("r1", "Soup or pie?"))
    begun, let_go = anyio.Event(), anyio.Event()
    done = list[str]()

    async def slow(_: Any) -> inbox_pb2.ClaimPendingRequestResponse:
        begun.set()
        await let_go.wait()
        done.append("claimed")
        return inbox_pb2.ClaimPendingRequestResponse(pending_request=asks("r1", "Soup or pie?"))

    def released(_: Any) -> inbox_pb2.ReleasePendingRequestResponse:
        done.append("released")
        return inbox_pb2.ReleasePendingRequestResponse()

    hub.replies |= {"ClaimPendingRequest": slow, "ReleasePendingRequest": released}
    async with at_terminal(hub) as ann:
        await leave_while_claiming(ann, begun)
        let_go.set()
    # Once more at the end of the program, if the first response had not come by then: to repeat it is harmless.
    assert done[:2] == ["claimed", "released"]
    assert set(done[2:]) <= {"released"}


async def test_a_claim_that_is_refused_after_its_form_was_left_is_no_error_of_the_program(hub: ScriptedHub) -> None:
    """asyncio reports a task whose exception is never read, and the test's loop fails for it."""
    script(hub, asks("r1", "Soup or pie?"))
    begun, let_go, refused = anyio.Event(), anyio.Event(), anyio.Event()

    async def slow(_: Any) -> None:
        begun.set()
        await let_go.wait()
        refused.set()
        elsewhere()

    hub.replies["ClaimPendingRequest"] = slow
    async with at_terminal(hub) as ann:
        await leave_while_claiming(ann, begun)
        let_go.set()
        with anyio.fail_after(60):
            await refused.wait()
    gc.collect()
    await anyio.wait_all_tasks_blocked()


async def test_a_claim_is_renewed_long_before_it_lapses(hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()

    def passing(pause_s: float) -> Any:
        """A pause that is noted, and over at once."""
        pauses.append(pause_s)
        return anyio.move_on_after(0.01)

    monkeypatch.setattr(answer, "anyio", SimpleNamespace(Event=anyio.Event, move_on_after=passing))
    script(hub, asks("r1", "Soup or pie?"))
    tries = Tries(lambda: inbox_pb2.ClaimPendingRequestResponse(pending_request=asks("r1", "Soup or pie?")))
    hub.replies["ClaimPendingRequest"] = tries
    async with at_terminal(hub) as ann:
        await ann.sees("Soup or pie?")
        await ann.press("enter")
        with anyio.fail_after(60):
            for _ in range(3):
                await tries.next()
    ttl = hub.requests("ClaimPendingRequest")[0].ttl.ToTimedelta().total_seconds()
    assert len({request.claim_id for request in hub.requests("ClaimPendingRequest")}) == 1
    assert max(pauses) <= ttl / 2


def elsewhere() -> Any:
    """What the hub says while another window of the same person has the claim."""
    raise Refusal("FAILED_PRECONDITION", "ALREADY_CLAIMED", "claimed", {"claimed_by": "ann", "own": "true"})


class Tries:
    """Answers each attempt to claim, and tells of it."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer
        self._tried = anyio.Event()
        self.taken_over = anyio.Event()

    def __call__(self, request: Any) -> Any:
        if request.take_over:
            self.taken_over.set()
        self._tried.set()
        return self._answer()

    async def next(self) -> None:
        """Wait for another attempt."""
        self._tried = anyio.Event()
        await self._tried.wait()
