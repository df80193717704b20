"""What people type at the terminal answers no question that they did not mean to answer."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio.lowlevel
import pytest

from hubbub.v1 import inbox_pb2

from ..clients.conftest import ScriptedHub, hub, told
from .conftest import at_terminal
from .hostile_hub import script

__all__ = ["hub"]

FORM, PAGE, SAMPLING, ROOTS = range(1, 5)
TEXT, YES_OR_NO = {"type": "string", "title": "Name"}, {"type": "boolean", "title": "Approve"}
MESSAGES = [{"role": "user", "content": {"type": "text", "text": "Asked?"}}]


def form(**fields: Any) -> tuple[int, dict[str, Any]]:
    """A form with these fields."""
    return FORM, {"message": "Asked?", "requestedSchema": {"type": "object", "properties": fields}}


KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "nothing to fill in": form(),
    "one line": form(name=TEXT),
    "several lines": form(first=TEXT, second=TEXT),
    "yes or no": form(ok=YES_OR_NO),
    "a yes or no with a default": form(ok=YES_OR_NO | {"default": False}),
    "choices": form(one={"type": "string", "enum": ["yes", "no"]}),
    "several choices": form(some={"type": "array", "items": {"type": "string", "enum": ["yes", "no"]}}),
    "a page": (PAGE, {"message": "Asked?", "url": "https://example.org/", "elicitationId": "1"}),
    "a sampling": (SAMPLING, {"messages": MESSAGES, "maxTokens": 9}),
    "directories": (ROOTS, {}),
}


def asks(hub: ScriptedHub, kind: int, params: dict[str, Any]) -> None:
    """Has the hub show one open question of a server."""
    script(hub)
    asked = inbox_pb2.PendingRequest(id="r1", server="files", kind=kind, state=1, request=json.dumps(params).encode())
    asked.created_at.FromDatetime(datetime.now(UTC))
    asked.expires_at.FromDatetime(datetime.now(UTC) + timedelta(hours=1))

    hub.streams["WatchPendingRequests"] = told(inbox_pb2.WatchPendingRequestsResponse, asked)
    hub.replies |= {
        "GetPendingRequest": lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=asked),
        "ClaimPendingRequest": lambda _: inbox_pb2.ClaimPendingRequestResponse(pending_request=asked),
    }


@pytest.mark.parametrize("kind", KINDS)
async def test_words_and_enter_typed_where_a_question_opens_answer_nothing(kind: str, hub: ScriptedHub) -> None:
    asks(hub, *KINDS[kind])
    async with at_terminal(hub) as ann:
        await ann.sees("1 open request")
        await ann.press("enter")
        await ann.sees("Leave open (esc)")
        for word in ("yes", "no", "every", "decline"):
            await ann.press(*word, "enter", "enter")
    assert hub.requests("AnswerPendingRequest") == []


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        *((word, "nothing to fill in") for word in ("yes", "every", "decline", "e", "key", "they", "eyyy")),
        *((("approve", "tab"), kind) for kind in ("nothing to fill in", "a sampling", "directories")),
    ],
)
async def test_words_typed_in_the_list_answer_nothing(word: str | tuple[str, str], kind: str, hub: ScriptedHub) -> None:
    asks(hub, *KINDS[kind])
    async with at_terminal(hub) as ann:
        await ann.sees("1 open request")
        letters, *more = (word,) if isinstance(word, str) else word
        await ann.press(*letters, *more, "enter", "escape", "enter")
    assert hub.requests("AnswerPendingRequest") == []


@pytest.mark.parametrize("steps", range(6, 14))
async def test_the_program_ends_quietly_while_a_dialog_opens(steps: int, hub: ScriptedHub) -> None:
    asks(hub, *KINDS["a sampling"])
    async with at_terminal(hub) as ann:
        await ann.sees("1 open request")
        ann.app.simulate_key("e")
        for _ in range(steps):  # of the loop: how far the dialog has come
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("kind", ["nothing to fill in", "a page", "a sampling", "directories"])
async def test_no_key_that_people_type_on_says_yes_in_a_dialog(kind: str, hub: ScriptedHub) -> None:
    asks(hub, *KINDS[kind])
    async with at_terminal(hub) as ann:
        await ann.sees("1 open request")
        for keys in ("y", "n", "space", "escape", "enter", "tab enter", "shift+tab enter", "tab tab space"):
            await ann.press("e")
            await ann.sees("Yes (ctrl+y)")
            await ann.press(*keys.split(), *(() if keys in ("n", "escape", "enter") else ("escape",)))
            await ann.no_longer_sees("Yes (ctrl+y)")
    assert hub.requests("AnswerPendingRequest") == []
