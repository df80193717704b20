"""`hubbub agent` as it is typed: what is wrong with the words, and a hub that fails meanwhile; on a scripted hub."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hubbub.v1 import inbox_pb2

from .conftest import Refusal, ScriptedHub, hub, hubbub, typed

__all__ = ["hub", "hubbub", "typed"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--exec", "don't"], "--exec: the command cannot be read: No closing quotation"),
        (["--chat", "http://127.0.0.1:1/v1"], "--chat needs --model MODEL"),
        (["--accept", "--model", "m"], "--model and --api-key-env belong to --chat"),
        (["--rules", "rules.toml", "--api-key-env", "KEY"], "--model and --api-key-env belong to --chat"),
        (["--rules", "rules.toml", "--server", "one"], "give --rules FILE, or one of"),
    ],
)
async def test_words_that_do_not_fit_together_are_said(
    hub: ScriptedHub, typed: Any, words: Sequence[str], says: str
) -> None:
    ran = await typed("agent", *words)
    assert ran.status == 2
    assert says in ran.err
    assert hub.seen == []


def asked() -> inbox_pb2.PendingRequest:
    """An open form."""
    return inbox_pb2.PendingRequest(
        id="r1",
        server="one",
        kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM,
        state=inbox_pb2.PENDING_REQUEST_STATE_OPEN,
        request=b'{"message": "Well?", "requestedSchema": {}}',
    )


def fails(reason: str) -> Any:
    """What a hub says that refuses."""

    def refuse(_: Any) -> Any:
        raise Refusal("FAILED_PRECONDITION", reason, "no such luck")

    return refuse


@pytest.mark.parametrize(("reason", "outcome"), [("ALREADY_CLAIMED", "refused"), ("STORE_FAILED", "failed")])
async def test_a_question_that_cannot_be_claimed_is_noted_by_its_reason(
    hub: ScriptedHub, hubbub: Any, reason: str, outcome: str
) -> None:
    hub.replies["ListPendingRequests"] = lambda _: inbox_pb2.ListPendingRequestsResponse(pending_requests=[asked()])
    hub.replies["ClaimPendingRequest"] = fails(reason)
    ran = await hubbub("agent", "--decline", "--once")
    (line,) = [json.loads(each) for each in ran.err.splitlines() if each.startswith("{")]
    assert (line["outcome"], line["why"]) == (outcome, reason)
    assert ("r1 is left to people: no such luck" in ran.err) == (outcome == "failed")


async def test_an_answer_is_noted_once_also_when_its_claim_cannot_be_given_back(hub: ScriptedHub, hubbub: Any) -> None:
    hub.replies["ListPendingRequests"] = lambda _: inbox_pb2.ListPendingRequestsResponse(pending_requests=[asked()])
    hub.replies["ClaimPendingRequest"] = lambda _: inbox_pb2.ClaimPendingRequestResponse(pending_request=asked())
    hub.replies["AnswerPendingRequest"] = lambda _: inbox_pb2.AnswerPendingRequestResponse(pending_request=asked())
    hub.replies["ReleasePendingRequest"] = fails("STORE_FAILED")
    ran = await hubbub("agent", "--decline", "--once")
    assert ran.status == 0
    assert [json.loads(each)["outcome"] for each in ran.err.splitlines()] == ["answered"]


@pytest.mark.parametrize("limit", ["tokens_per_hour", "tokens_per_run"])
async def test_usage_of_earlier_runs_is_read_from_the_data_directory_where_a_limit_counts_it(
    hub: ScriptedHub, hubbub: Any, tmp_path: Path, limit: str
) -> None:
    rules, ledger = tmp_path / "rules.toml", hub.data_dir / "agent-agent.json"
    model = '[chat.m]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
    rules.write_text(f'{model}[limits]\n{limit} = 100\n[[rule]]\nchat = "m"\n')
    ledger.write_text("{")
    hub.replies["ListPendingRequests"] = lambda _: inbox_pb2.ListPendingRequestsResponse()
    words = ("agent", "--rules", str(rules), "--once")
    ran = await hubbub(*words)
    assert (f"{ledger}: cannot be read" in ran.err) == (limit == "tokens_per_hour") == (ran.status == 2)
    assert str(ledger) not in (await hubbub(*words, "--dry-run")).err
