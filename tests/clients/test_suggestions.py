"""What a host suggests to allow beside one use of its own tool, as people see it and take it."""

import json
from dataclasses import replace
from typing import Any

import anyio
import pytest

from hubbub.v1 import inbox_pb2
from hubbub_cli.terminal.answer import ask_for_answer
from hubbub_client import connect
from hubbub_client.data.approvals import ApprovalSuggestion
from hubbub_frontend.display.approvals import SuggestionChoice, approval_view, render_approval
from hubbub_frontend.display.text import DetailText

from .approvals import DIGEST, DOCUMENT, answered, approval
from .test_approval_words import pending
from .test_asked_at_a_terminal import Person, person

__all__ = ["person"]

LIMIT_S = 60
PUSH = "allow Bash(git push:*) for this session"
FOR_GOOD = "allow every use of Bash for good, in all projects of this person"
SUGGESTIONS: list[Any] = [
    {"words": PUSH, "lasting": False, "permission": {}},
    {"words": FOR_GOOD, "lasting": True, "permission": {}},
]
OF_HOST = {
    **DOCUMENT,
    "suggestions": SUGGESTIONS,
    "rule": {**DOCUMENT["rule"], "needed": 1},
    "tool": {"name": "Bash"},
}


@pytest.fixture
def asked(hub: Any) -> None:
    """The hub has one call to approve whose host suggests something."""
    record = approval(server="host", request=json.dumps(OF_HOST).encode())

    def show(_: Any) -> inbox_pb2.GetPendingRequestResponse:
        return inbox_pb2.GetPendingRequestResponse(pending_request=record)

    hub.replies["GetPendingRequest"] = show
    hub.replies["AnswerPendingRequest"] = answered


@pytest.mark.usefixtures("asked")
async def test_the_library_shows_the_suggestions_and_takes_some_by_their_index(hub: Any) -> None:
    async with connect(data_dir=hub.data_dir) as client:
        request = await client.inbox.get("req_1")
        assert request.approval is not None
        assert request.approval.suggestions == (ApprovalSuggestion(PUSH, False), ApprovalSuggestion(FOR_GOOD, True))
        await request.approve(suggestions=[1])
        await client.inbox.approve("req_1", suggestions=(0, 1), digest=DIGEST)
    assert [list(each.approve.suggestions) for each in hub.requests("AnswerPendingRequest")] == [[1], [0, 1]]


@pytest.mark.usefixtures("asked")
async def test_the_command_line_takes_suggestions(hub: Any, hubbub: Any) -> None:
    ran = await hubbub("inbox", "answer", "req_1", "--approve", "--suggestion", "0", "--suggestion", "1")
    assert ran.status == 0, ran.err
    (sent,) = hub.requests("AnswerPendingRequest")
    assert sent.approve == inbox_pb2.AnswerPendingRequestRequest.Approve(suggestions=[0, 1])
    ran = await hubbub("inbox", "answer", "req_1", "--deny", "no", "--suggestion", "0")
    assert "--suggestion goes with --approve" in ran.error["message"]


@pytest.mark.parametrize(
    ("lines", "taken"), [(("s", "0"), [0]), (("s", "7", "x", "0, 1"), [0, 1]), (("s", "", "a"), [])]
)
@pytest.mark.usefixtures("asked")
async def test_a_person_at_a_terminal_takes_suggestions(
    hub: Any, person: Person, lines: tuple[str, ...], taken: list[int]
) -> None:
    async with connect(data_dir=hub.data_dir) as client:
        request = await client.inbox.get("req_1")
        person.types(*lines)
        with anyio.fail_after(LIMIT_S):
            await ask_for_answer(client, request, {"claim_id": "c"})
    (sent,) = hub.requests("AnswerPendingRequest")
    assert (sent.WhichOneof("answer"), list(sent.approve.suggestions)) == ("approve", taken)
    assert f"0) {PUSH}" in person.sees


def test_the_hub_says_nothing_of_what_a_host_does_by_itself() -> None:
    page = DetailText()
    render_approval(page, replace(pending(OF_HOST), server="host"))
    assert "whether it writes" not in page.text.plain
    assert "its server says" not in page.text.plain
    assert f"suggestion 0 {PUSH}" in " ".join(page.text.plain.split())
    page = DetailText()
    render_approval(page, pending(OF_HOST))
    assert "its server does not say whether it writes" in " ".join(page.text.plain.split())


def test_a_suggestion_that_would_be_cut_is_not_offered() -> None:
    long = {"words": "x" * 2000, "lasting": False}
    view = approval_view(pending({**OF_HOST, "suggestions": [long, *SUGGESTIONS, {"lasting": False}]}))
    assert view is not None
    assert view.suggestions == (SuggestionChoice(1, PUSH, False), SuggestionChoice(2, FOR_GOOD, True))
