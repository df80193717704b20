"""Approving and denying by the library, and by a person at a terminal."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.protobuf.duration_pb2 import Duration

from hubbub.v1 import inbox_pb2
from hubbub_cli.terminal.answer import ask_for_answer
from hubbub_client import connect, sync
from hubbub_client.errors import FailedPrecondition

from .approvals import DIGEST, DOCUMENT, answered, approval, ask
from .test_asked_at_a_terminal import Person, person

__all__ = ["person"]

LIMIT_S = 60


@pytest.fixture(autouse=True)
def asked(hub: Any) -> None:
    """The hub has one call to approve."""
    ask(hub)


# The library


async def test_a_record_approves_what_it_shows(hub: Any) -> None:
    async with connect(data_dir=hub.data_dir) as client:
        request = await client.inbox.get("req_1")
        assert request.approval is not None
        await request.approve({"repo": "x"}, remember_s=3600, same_arguments=True, comment="fine")
        await request.deny("no", claim_id="c")
        await client.inbox.approve("req_2", digest="d")
        await client.inbox.deny("req_3", "why")
    approve = inbox_pb2.AnswerPendingRequestRequest.Approve
    first, second, third, fourth = hub.requests("AnswerPendingRequest")
    assert first.approve == approve(
        arguments=b'{"repo":"x"}',
        remember=Duration(seconds=3600),
        same_arguments=True,
        comment="fine",
        digest=DIGEST,
    )
    assert (second.deny.reason, second.claim_id) == ("no", "c")
    assert (third.id, third.approve) == ("req_2", approve(digest="d"))
    assert (fourth.id, fourth.deny.reason) == ("req_3", "why")


async def test_the_library_without_async_approves_and_denies_too(hub: Any) -> None:
    def script() -> None:
        with sync.connect(data_dir=hub.data_dir) as plain:
            plain.inbox.get("req_1").approve({"repo": "x"}, remember_s=3600)
            plain.inbox.get("req_1").deny("not today")

    await anyio.to_thread.run_sync(script)
    approved, denied = hub.requests("AnswerPendingRequest")
    assert (approved.approve.arguments, approved.approve.remember.seconds) == (b'{"repo":"x"}', 3600)
    assert denied.deny.reason == "not today"


@pytest.mark.parametrize(
    ("returned", "sent"),
    [
        (True, {"approve": {"digest": DIGEST}}),
        (False, {"deny": {}}),
        ("not this one", {"deny": {"reason": "not this one"}}),
        ({"repo": "x"}, {"approve": {"arguments": b'{"repo":"x"}', "digest": DIGEST}}),
    ],
)
async def test_a_handler_approves_or_denies_by_what_it_returns(hub: Any, returned: Any, sent: dict[str, Any]) -> None:
    async def work(request: Any) -> Any:
        assert list(request.ready.filter.kinds) == [inbox_pb2.PENDING_REQUEST_KIND_APPROVAL]
        yield inbox_pb2.WorkResponse(assigned=approval())
        await anyio.sleep_forever()

    hub.streams["Work"] = lambda steps: work_of(steps, work)
    seen: list[Any] = []
    async with connect(data_dir=hub.data_dir) as client:

        @client.on_approval(server="github")
        def judge(request: Any) -> Any:
            seen.append(request.approval.current_arguments)
            return returned

        with anyio.move_on_after(LIMIT_S):
            async with anyio.create_task_group() as group:
                group.start_soon(client.serve)
                while not hub.requests("AnswerPendingRequest"):
                    await anyio.sleep(0.005)
                group.cancel_scope.cancel()
    (got,) = hub.requests("AnswerPendingRequest")
    expected = inbox_pb2.AnswerPendingRequestRequest(id="req_1", answer_id=got.answer_id, **sent)
    assert got == expected
    assert seen == [DOCUMENT["arguments"]]


async def work_of(steps: Any, work: Any) -> Any:
    async for step in steps:
        async for response in work(step):
            yield response


# At a terminal


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what the person's editor makes of the arguments."""

    def leaves(text: str) -> None:
        script = tmp_path / "editor"
        script.write_text(f"#!/bin/sh\ncat > \"$1\" <<'END'\n{text}\nEND\n")
        script.chmod(0o755)
        monkeypatch.setenv("VISUAL", str(script))

    return leaves


@pytest.mark.parametrize(
    ("lines", "sent"),
    [
        (("", "a"), {"approve": {"digest": DIGEST}}),
        (("approve",), {"approve": {"digest": DIGEST}}),
        (("d", "not now"), {"deny": {"reason": "not now"}}),
        (("r", "2", "n"), {"approve": {"digest": DIGEST, "remember": Duration(seconds=86400)}}),
        (
            ("r", "9", "", ""),
            {"approve": {"digest": DIGEST, "remember": Duration(seconds=3600), "same_arguments": True}},
        ),
        (("l",), None),
    ],
)
async def test_a_person_approves_step_by_step(
    hub: Any, person: Person, lines: tuple[str, ...], sent: dict[str, Any] | None
) -> None:
    assert await terminal_answer(hub, person, *lines) == sent
    assert "destructive" in person.sees


@pytest.mark.parametrize(
    ("lines", "edited", "sent"),
    [
        (("c", "a"), '{"repo": "sandbox"}', {"approve": {"digest": DIGEST, "arguments": b'{"repo":"sandbox"}'}}),
        (("c", "b", "l"), '{"repo": "sandbox"}', None),
        (("c", "b", "l"), "[1]", None),
        (("c", "b", "l"), "{", None),
        (("c", "b", "l"), '{"repo": NaN}', None),
        (("c", "l"), json.dumps(DOCUMENT["arguments"]), None),
    ],
)
@pytest.mark.usefixtures("processes")
async def test_a_person_changes_the_arguments_in_an_editor(
    hub: Any, person: Person, editor: Any, lines: tuple[str, ...], edited: str, sent: dict[str, Any] | None
) -> None:
    editor(edited)
    assert await terminal_answer(hub, person, *lines) == sent


async def terminal_answer(hub: Any, person: Person, *lines: str) -> dict[str, Any] | None:
    """What is sent when a person types these lines; None if they leave it open."""
    async with connect(data_dir=hub.data_dir) as client:
        request = await client.inbox.get("req_1")
        person.types(*lines)
        with anyio.fail_after(LIMIT_S):
            done = await ask_for_answer(client, request, {"claim_id": "c"})
    got = hub.requests("AnswerPendingRequest")
    if done is None:
        assert not got
        return None
    assert (got[0].id, got[0].claim_id, len(got)) == ("req_1", "c", 1)
    kind = got[0].WhichOneof("answer")
    return {kind: {field.name: value for field, value in getattr(got[0], kind).ListFields()}}


async def test_arguments_that_somebody_has_changed_are_shown_again_before_a_person_approves(
    hub: Any, person: Person, refusal: Any
) -> None:
    changed = approval(arguments_digest="sha256:new", changed_arguments=b'{"repo":"other"}')
    answers: list[Any] = []

    def answer(request: Any) -> Any:
        answers.append(request)
        if len(answers) == 1:
            hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=changed)
            raise refusal("FAILED_PRECONDITION", "ARGUMENTS_CHANGED", "ben has changed the arguments")
        return answered(request)

    hub.replies["AnswerPendingRequest"] = answer
    async with connect(data_dir=hub.data_dir) as client:
        request = await client.inbox.get("req_1")
        person.types("a", "a")
        with anyio.fail_after(LIMIT_S):
            assert await ask_for_answer(client, request, {"claim_id": "c"}) is not None
    assert [each.approve.digest for each in answers] == [DIGEST, "sha256:new"]
    assert "other" in person.sees.split("ben has changed the arguments")[1]


async def test_who_approved_already_is_told_so(hub: Any, person: Person, refusal: Any) -> None:
    def answer(_: Any) -> Any:
        raise refusal("FAILED_PRECONDITION", "ALREADY_APPROVED", "you have approved this already")

    hub.replies["AnswerPendingRequest"] = answer
    async with connect(data_dir=hub.data_dir) as client:
        request = await client.inbox.get("req_1")
        person.types("a")
        with anyio.fail_after(LIMIT_S), pytest.raises(FailedPrecondition, match="approved this already"):
            await ask_for_answer(client, request, {"claim_id": "c"})
