"""Approvals on the command line: what is sent to the hub, and what people and programs see."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from hubbub.v1 import approval_pb2 as pb
from hubbub.v1 import catalog_pb2, inbox_pb2
from hubbub_cli.commands.approvals import cut_out_table

from .approvals import DIGEST, approval, ask

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


@pytest.fixture(autouse=True)
def asked(hub: Any) -> None:
    """The hub has one call to approve."""
    ask(hub)


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
    assert hub.requests("ListRememberedApprovals")[0].filter.server == "github"
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
    hub.replies["GetApprovalRules"] = lambda request: pb.GetApprovalRulesResponse(
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
