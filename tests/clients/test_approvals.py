"""Approvals on the command line and in the library: what is sent to the hub, and what people and programs see."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from hubbub.v1 import approval_pb2 as pb
from hubbub.v1 import catalog_pb2, inbox_pb2
from hubbub_cli.commands.approvals import cut_out_table
from hubbub_cli.terminal.answer import ask_for_answer
from hubbub_client import connect, sync
from hubbub_client.errors import FailedPrecondition

from .test_asked_at_a_terminal import Person, person

__all__ = ["person"]

LIMIT_S = 60
DIGEST = "sha256:of-what-was-shown"
DOCUMENT: dict[str, Any] = {
    "message": "Deletes need two people.",
    "reason": "",
    "rule": {
        "name": "deletes",
        "needed": 2,
        "not_by_caller": True,
        "approvers": [],
        "edit": True,
        "remember_s": [3600, 86400],
    },
    "tool": {
        "name": "delete_branch",
        "description": "Deletes it.",
        "annotations": {"destructiveHint": True},
        "inputSchema": {"properties": {"repo": {"title": "Repository"}, "branch": {}}},
    },
    "arguments": {"repo": "shop", "branch": "release/1.4"},
    "digest": DIGEST,
    "definition": "",
    "caller": {"name": "deploy-bot", "host": "claude-code 2.1", "profile": "default", "roles": ["caller"]},
    "before": [],
}
RULE = pb.ApprovalRule(
    name="deletes",
    servers=["git*"],
    tools=["delete_*"],
    when="args.repo != 'sandbox'",
    action=pb.APPROVAL_ACTION_ASK,
    needed=2,
    approvers=["ada"],
    remember=[Duration(seconds=3600)],
    message="Deletes need two people.",
)
MADE = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
REMEMBERED = pb.RememberedApproval(
    id="apv_1",
    server="github",
    tool="delete_branch",
    caller="deploy-bot",
    rule="deletes",
    approved_by=["ada", "ben"],
    created_at=Timestamp(seconds=int(MADE.timestamp())),
    expires_at=Timestamp(seconds=int(MADE.timestamp()) + 3600),
    arguments=b'{"repo":"shop"}',
    pending_request_id="req_1",
)


def approval(**more: Any) -> inbox_pb2.PendingRequest:
    fields: dict[str, Any] = {
        "id": "req_1",
        "server": "github",
        "kind": inbox_pb2.PENDING_REQUEST_KIND_APPROVAL,
        "state": inbox_pb2.PENDING_REQUEST_STATE_OPEN,
        "request": json.dumps(DOCUMENT).encode(),
        "arguments_digest": DIGEST,
        **more,
    }
    return inbox_pb2.PendingRequest(**fields)


def answered(request: Any) -> Any:
    return inbox_pb2.AnswerPendingRequestResponse(
        pending_request=approval(id=request.id, state=inbox_pb2.PENDING_REQUEST_STATE_ANSWERED)
    )


@pytest.fixture(autouse=True)
def asked(hub: Any) -> None:
    """The hub has one call to approve, and takes every answer."""
    hub.replies["GetPendingRequest"] = lambda request: inbox_pb2.GetPendingRequestResponse(pending_request=approval())
    hub.replies["AnswerPendingRequest"] = answered


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (("--approve",), {}),
        (("--approve", "--remember", "1h"), {"remember": Duration(seconds=3600)}),
        (
            ("--approve", "--remember", "1d", "--same-arguments"),
            {"remember": Duration(seconds=86400), "same_arguments": True},
        ),
        (("--approve", "--comment", "fine", "--digest", DIGEST), {"comment": "fine", "digest": DIGEST}),
        (("--change", '{"repo": "sandbox"}'), {"arguments": b'{"repo":"sandbox"}'}),
        (("--approve", "--change", "{}"), {"arguments": b"{}"}),
        (("--change", "@{dir}/changed.json"), {"arguments": b'{"from":"a file"}'}),
    ],
)
async def test_an_approval_is_sent_with_what_goes_with_it(
    hub: Any, hubbub: Any, tmp_path: Path, words: tuple[str, ...], given: dict[str, Any]
) -> None:
    (tmp_path / "changed.json").write_text('{"from": "a file"}')
    ran = await hubbub(
        "inbox", "answer", "req_1", *(word.format(dir=tmp_path) if "@" in word else word for word in words)
    )
    assert ran.status == 0, ran.err
    (sent,) = hub.requests("AnswerPendingRequest")
    assert sent.approve == inbox_pb2.AnswerPendingRequestRequest.Approve(**given)
    assert ran.lines[0]["state"] == "answered"
    assert ran.lines[0]["request"]["tool"]["name"] == "delete_branch"


@pytest.mark.parametrize(
    ("words", "reason"), [(("--deny", "not now"), "not now"), (("--deny", "--answer-id", "a"), "")]
)
async def test_a_denial_is_sent_with_its_reason(hub: Any, hubbub: Any, words: tuple[str, ...], reason: str) -> None:
    assert (await hubbub("inbox", "answer", "req_1", *words)).status == 0
    (sent,) = hub.requests("AnswerPendingRequest")
    assert (sent.WhichOneof("answer"), sent.deny.reason) == ("deny", reason)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--approve", "--deny", "no"), "give one answer"),
        (("--approve", "--accept"), "give one answer"),
        (("--remember", "1h"), "--remember goes with --approve"),
        (("--deny", "no", "--comment", "x"), "--comment goes with --approve"),
        (("--approve", "--same-arguments"), "--same-arguments goes with --remember"),
        (("--approve", "--remember", "soon"), "--remember: 'soon' is not a span"),
        (("--change", "[1]"), "--change must be a JSON object"),
        (("--change", "{"), "given as --change, is no valid JSON"),
        (("--change", "@/no/such/file"), "--change: /no/such/file cannot be read"),
    ],
)
async def test_what_does_not_go_together_is_refused_before_anything_is_sent(
    hub: Any, hubbub: Any, words: tuple[str, ...], says: str
) -> None:
    ran = await hubbub("inbox", "answer", "req_1", *words)
    assert (ran.status, ran.error["reason"]) == (2, "USAGE")
    assert says in ran.error["message"]
    assert not hub.seen


async def test_people_read_who_wants_to_run_what_and_by_which_rule(hubbub: Any) -> None:
    ran = await hubbub("inbox", "show", "req_1", json=False)
    for words in (
        "deploy-bot (claude-code 2.1) wants to run delete_branch on github",
        "destructive",
        "Repository",
        "release/1.4",
        "Deletes need two people.",
        "inbox answer req_1 --approve",
    ):
        assert words in ran.out, words


async def test_an_approval_of_which_more_are_needed_says_so(hub: Any, hubbub: Any) -> None:
    voted = approval(approvals=[inbox_pb2.PendingRequest.Approval(by="ada")])
    hub.replies["AnswerPendingRequest"] = lambda request: inbox_pb2.AnswerPendingRequestResponse(pending_request=voted)
    ran = await hubbub("inbox", "answer", "req_1", "--approve", json=False)
    assert ran.out == "req_1 waits on: ada has said yes; one more is needed.\n"


async def test_remembered_approvals_are_listed_and_revoked(hub: Any, hubbub: Any) -> None:
    hub.replies["ListRememberedApprovals"] = lambda request: pb.ListRememberedApprovalsResponse(approvals=[REMEMBERED])
    hub.replies["RevokeRememberedApproval"] = lambda request: pb.RevokeRememberedApprovalResponse(approval=REMEMBERED)
    (line,) = (await hubbub("approvals", "list", "--server", "github")).lines
    assert line == {
        "id": "apv_1",
        "server": "github",
        "tool": "delete_branch",
        "caller": "deploy-bot",
        "rule": "deletes",
        "approved_by": ["ada", "ben"],
        "created_at": "2026-11-29T12:00:00Z",
        "expires_at": "2026-11-29T13:00:00Z",
        "arguments": {"repo": "shop"},
        "pending_request_id": "req_1",
    }
    assert hub.requests("ListRememberedApprovals")[0].server == "github"
    table = (await hubbub("approvals", "list", json=False)).out
    assert all(words in table for words in ("apv_1", "delete_branch", "ada, ben", '{"repo": "shop"}'))
    assert (await hubbub("approvals", "revoke", "apv_1")).lines == [line]
    assert hub.requests("RevokeRememberedApproval")[0].id == "apv_1"


async def test_the_beginning_of_an_id_is_enough_to_revoke(hub: Any, hubbub: Any, refusal: Any) -> None:
    def revoke(request: Any) -> Any:
        if request.id != "apv_1":
            raise refusal("NOT_FOUND", "APPROVAL_NOT_FOUND", "no approval", {"approval": request.id})
        return pb.RevokeRememberedApprovalResponse(approval=REMEMBERED)

    hub.replies["RevokeRememberedApproval"] = revoke
    hub.replies["ListRememberedApprovals"] = lambda request: pb.ListRememberedApprovalsResponse(approvals=[REMEMBERED])
    assert (await hubbub("approvals", "revoke", "apv")).status == 0


async def test_the_rules_are_shown_in_their_order_with_the_default_and_what_is_wrong(hub: Any, hubbub: Any) -> None:
    preset = pb.ApprovalRule(
        name="confirm", servers=["*"], tools=["*"], action=pb.APPROVAL_ACTION_ASK, preset="confirm"
    )
    hub.replies["ListApprovalRules"] = lambda request: pb.ListApprovalRulesResponse(
        rules=[RULE, preset], default_action=pb.APPROVAL_ACTION_ALLOW, warnings=["rule 'deletes': no server matches"]
    )
    (found,) = (await hubbub("approvals", "rules")).lines
    assert [rule["name"] for rule in found["rules"]] == ["deletes", "confirm"]
    assert found["rules"][0]["remember_ms"] == [3600000]
    assert (found["default_action"], found["rules"][1]["preset"]) == ("allow", "confirm")
    ran = await hubbub("approvals", "rules", json=False)
    assert "args.repo != 'sandbox'" in ran.out
    assert "a call that no rule matches is sent" in ran.out
    assert "warning: rule 'deletes': no server matches" in ran.err


async def test_a_call_is_checked_as_somebody_else_would_make_it(hub: Any, hubbub: Any) -> None:
    tool = {"name": "delete_branch", "inputSchema": {"properties": {"repo": {}, "depth": {"type": "string"}}}}
    entry = catalog_pb2.CatalogEntry(
        server="github", kind=catalog_pb2.CATALOG_KIND_TOOL, object=json.dumps(tool).encode()
    )
    hub.replies["ListCatalogEntries"] = lambda request: catalog_pb2.ListCatalogEntriesResponse(entries=[entry])
    hub.replies["CheckApproval"] = lambda request: pb.CheckApprovalResponse(
        action=pb.APPROVAL_ACTION_ASK, rule=RULE, reason="The call waits for approval."
    )
    words = ("approvals", "check", "github", "delete_branch", "repo=shop", "depth=1", "--as", "deploy-bot")
    ran = await hubbub(*words, "--role", "caller", "--host", "claude-code", "--profile", "p")
    assert ran.status == 0, ran.err
    (found,) = ran.lines
    assert (found["action"], found["rule"]["name"], found["remembered_id"]) == ("ask", "deletes", None)
    (sent,) = hub.requests("CheckApproval")
    assert (sent.caller, list(sent.roles), sent.host, sent.profile) == ("deploy-bot", ["caller"], "claude-code", "p")
    assert json.loads(sent.arguments) == {"repo": "shop", "depth": "1"}
    assert "hubbub-as" not in dict(hub.seen[-1][2])
    ran = await hubbub("approvals", "check", "github", "delete_branch", '{"repo": "shop"}', json=False)
    assert "The call waits for approval." in ran.out
    assert "delete_*" in ran.out


RULES = """# secret = "x"
[servers.github]
env = { TOKEN = "secret" }

[approvals]
default = "ask"

[[approvals.rules]]
name = "deletes"

[store]
url = "postgresql://secret"
"""


async def test_rules_of_a_file_are_replayed_and_nothing_else_of_it_leaves_the_machine(
    hub: Any, hubbub: Any, tmp_path: Path
) -> None:
    file = tmp_path / "hubbub.toml"
    file.write_text(RULES)
    row = pb.ReplayApprovalsResponse.Row(
        rule="deletes",
        action=pb.APPROVAL_ACTION_ASK,
        server="github",
        tool="delete_branch",
        calls=7,
        callers=["deploy-bot"],
        newest_call_id="call_9",
    )
    hub.replies["ReplayApprovals"] = lambda request: pb.ReplayApprovalsResponse(rows=[row], calls=10, asked=7, denied=0)
    words = ("approvals", "replay", "--since", "7d", "--rules", str(file), "--server", "github")
    (found,) = (await hubbub(*words)).lines
    assert (found["calls"], found["asked"], found["rows"][0]["tool"]) == (10, 7, "delete_branch")
    (sent,) = hub.requests("ReplayApprovals")
    assert (sent.server, sent.since) == ("github", Duration(seconds=7 * 86400))
    assert "secret" not in sent.rules
    assert sent.rules.splitlines().index("[approvals]") == 4
    ran = await hubbub("approvals", "replay", json=False)
    assert "of 10 calls, 7 would have waited for approval, and 0 been refused" in ran.out
    assert not hub.requests("ReplayApprovals")[1].HasField("since")


@pytest.mark.parametrize(
    ("text", "says"),
    [("[approvals", "is not TOML"), ("[store]\n", "has no table [approvals]"), (None, "cannot be read")],
)
async def test_a_file_without_rules_is_refused(
    hub: Any, hubbub: Any, tmp_path: Path, text: str | None, says: str
) -> None:
    file = tmp_path / "rules.toml"
    if text is not None:
        file.write_text(text)
    ran = await hubbub("approvals", "replay", "--rules", str(file))
    assert ran.status == 2
    assert says in ran.error["message"]


async def test_other_tables_become_empty_lines_and_the_line_numbers_stay() -> None:
    cut = cut_out_table(RULES, "approvals").splitlines()
    assert [line for line in cut if line] == [
        "[approvals]",
        'default = "ask"',
        "[[approvals.rules]]",
        'name = "deletes"',
    ]
    assert cut.index("[[approvals.rules]]") == RULES.splitlines().index("[[approvals.rules]]")


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
            plain.inbox.get("req_1").approve()
            plain.inbox.get("req_1").deny()

    await anyio.to_thread.run_sync(script)
    assert [each.WhichOneof("answer") for each in hub.requests("AnswerPendingRequest")] == ["approve", "deny"]


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
