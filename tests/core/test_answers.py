"""What people answer, as the result that the server gets."""

from typing import Any

import pytest

from hubbubd import payload
from hubbubd.core.inbox.forms import (
    MAX_ANSWER_BYTES,
    MAX_VIOLATIONS,
    REJECTED,
    Accept,
    ClientAnswer,
    Decline,
    Dismiss,
    Reject,
    Result,
    Text,
    Unchecked,
    build_answer,
    default_answer,
    refusal_answer,
)
from hubbubd.core.inbox.request_states import RequestKind
from hubbubd.errors import InvalidArgument

FORM, URL, SAMPLING, ROOTS, _ = RequestKind
NAME_FORM = {"requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}
TEXT = {"type": "text", "text": "hi"}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
TOOL_USE = {"type": "tool_use", "id": "u1", "name": "search", "input": {"q": 2**70}}
OFFER = {"messages": [], "tools": [{"name": "search", "inputSchema": {"type": "object"}}]}
TOOL_RESULT = {"type": "tool_result", "toolUseId": "u1", "content": [TEXT]}


def answered(kind: RequestKind, given: ClientAnswer, request: dict[str, Any] | None = None) -> Any:
    answer = build_answer(kind, NAME_FORM if request is None else request, given)
    assert not answer.refused
    return payload.loads(answer.payload)


def violations(kind: RequestKind, given: ClientAnswer, request: dict[str, Any] | None = None) -> dict[str, str]:
    with pytest.raises(InvalidArgument) as refused:
        build_answer(kind, NAME_FORM if request is None else request, given)
    return dict(refused.value.violations)


def sampled(content: Any, **more: Any) -> Result:
    return Result({"role": "assistant", "model": "m", "content": content, **more})


def test_an_accepted_form_carries_its_content() -> None:
    assert answered(FORM, Accept({"name": "Ann"})) == {"action": "accept", "content": {"name": "Ann"}}


def test_accepting_a_form_with_open_required_fields_names_them() -> None:
    assert violations(FORM, Accept()) == {"content.name": "is required"}


def test_accepting_without_content_takes_the_defaults() -> None:
    request = {"requestedSchema": {"properties": {"n": {"type": "integer", "default": 2**70}}}}
    assert answered(FORM, Accept(), request) == {"action": "accept", "content": {"n": 2**70}}


@pytest.mark.parametrize("content", [None, {}])
def test_an_accepted_url_is_consent_without_content(content: dict[str, Any] | None) -> None:
    assert answered(URL, Accept(content), {"mode": "url", "url": "https://example.org"}) == {"action": "accept"}


def test_a_url_takes_no_content() -> None:
    assert violations(URL, Accept({"name": "Ann"})) == {"content": "only an accepted form has content"}


@pytest.mark.parametrize("kind", [FORM, URL])
@pytest.mark.parametrize(("given", "action"), [(Decline(), "decline"), (Dismiss(), "cancel")])
def test_a_no_to_an_elicitation_is_a_result_of_its_own(kind: RequestKind, given: ClientAnswer, action: str) -> None:
    assert answered(kind, given) == {"action": action}


def test_a_sampling_answered_by_hand_says_that_a_human_wrote_it() -> None:
    assert answered(SAMPLING, Text("hello"), {"messages": []}) == {
        "role": "assistant",
        "content": {"type": "text", "text": "hello"},
        "model": "human",
        "stopReason": "endTurn",
    }


@pytest.mark.parametrize(("message", "said"), [("not now", "not now"), ("", "User rejected the request")])
@pytest.mark.parametrize("kind", [SAMPLING, ROOTS])
def test_a_rejected_sampling_or_roots_request_is_error_minus_one(kind: RequestKind, message: str, said: str) -> None:
    answer = build_answer(kind, {}, Reject(message))
    assert answer.refused
    assert payload.loads(answer.payload) == {"error": {"code": REJECTED, "message": said}}
    assert answer == refusal_answer(message)


@pytest.mark.parametrize(
    ("kind", "given", "field"),
    [
        (FORM, Text("x"), "text"),
        (FORM, Reject("x"), "reject"),
        (URL, Text("x"), "text"),
        (URL, Reject("x"), "reject"),
        (SAMPLING, Accept({}), "accept"),
        (SAMPLING, Decline(), "decline"),
        (SAMPLING, Dismiss(), "cancel"),
        (ROOTS, Accept({}), "accept"),
        (ROOTS, Decline(), "decline"),
        (ROOTS, Dismiss(), "cancel"),
        (ROOTS, Text("x"), "text"),
    ],
)
def test_an_answer_that_belongs_to_another_kind_of_request_is_refused(
    kind: RequestKind, given: ClientAnswer, field: str
) -> None:
    assert violations(kind, given) == {field: f"does not answer a request of kind {kind}"}


@pytest.mark.parametrize(
    "content",
    [
        *(TEXT, IMAGE, AUDIO, TOOL_USE, TOOL_RESULT),
        *([], [TEXT], [TEXT, IMAGE, AUDIO, TOOL_USE]),
        {**TEXT, "annotations": {"priority": 1}, "_meta": {"x": 1}},
    ],
)
@pytest.mark.parametrize("more", [{}, {"stopReason": "toolUse"}, {"_meta": {"cost": 1}}])
def test_a_whole_sampling_result_reaches_the_server_as_it_was_given(content: Any, more: dict[str, Any]) -> None:
    given = sampled(content, **more)
    assert answered(SAMPLING, given, OFFER) == given.result


@pytest.mark.parametrize(
    ("result", "paths"),
    [
        ({}, ["result.role", "result.model", "result.content"]),
        (sampled(TEXT, role="system").result, ["result.role"]),
        (sampled(TEXT, role=["user"]).result, ["result.role"]),
        (sampled(TEXT, model=None).result, ["result.model"]),
        (sampled(TEXT, stopReason=5).result, ["result.stopReason"]),
        (sampled(TEXT, stopReason=None).result, ["result.stopReason"]),
        (sampled("hello").result, ["result.content"]),
        (sampled(None).result, ["result.content"]),
        (sampled({"type": "video"}).result, ["result.content"]),
        (sampled({"type": ["text"]}).result, ["result.content"]),
        (sampled({"type": "text"}).result, ["result.content.text"]),
        (sampled({"type": "text", "text": 5}).result, ["result.content.text"]),
        (sampled({"type": "image", "data": "aGk="}).result, ["result.content.mimeType"]),
        (sampled({"type": "audio"}).result, ["result.content.data", "result.content.mimeType"]),
        (sampled([TEXT, {**TOOL_USE, "input": "q"}]).result, ["result.content.1.input"]),
        (sampled([TEXT, 5, None]).result, ["result.content.1", "result.content.2"]),
        (sampled([{**TOOL_RESULT, "content": "x"}]).result, ["result.content.0.content"]),
    ],
)
def test_a_sampling_result_of_the_wrong_shape_is_refused_by_the_path(result: dict[str, Any], paths: list[str]) -> None:
    assert list(violations(SAMPLING, Result(result))) == paths


@pytest.mark.parametrize(
    ("request_", "content", "paths"),
    [
        ({"messages": []}, TOOL_USE, ["result.content.name"]),
        ({**OFFER, "tools": []}, [TEXT, TOOL_USE], ["result.content.1.name"]),
        ({**OFFER, "tools": [5, {"name": ["search"]}]}, TOOL_USE, ["result.content.name"]),
        (OFFER, [TOOL_USE, {**TOOL_USE, "name": "delete"}], ["result.content.1.name"]),
        ({**OFFER, "toolChoice": {"mode": "none"}}, TOOL_USE, ["result.content.name"]),
    ],
)
def test_an_answer_uses_only_the_tools_that_the_server_offers(
    request_: dict[str, Any], content: Any, paths: list[str]
) -> None:
    assert list(violations(SAMPLING, sampled(content), request_)) == paths


@pytest.mark.parametrize("choice", [{}, {"mode": "auto"}, {"mode": "required"}])
def test_an_answer_may_use_an_offered_tool_more_than_once(choice: dict[str, Any]) -> None:
    given = sampled([TEXT, TOOL_USE, {**TOOL_USE, "id": "u2"}], stopReason="toolUse")
    assert answered(SAMPLING, given, {**OFFER, "toolChoice": choice}) == given.result


def test_a_sampling_result_with_thousands_of_wrong_blocks_makes_a_short_refusal() -> None:
    assert len(violations(SAMPLING, sampled([5] * 10_000))) == MAX_VIOLATIONS


@pytest.mark.parametrize(
    "roots", [[], [{"uri": "file:///srv/ann"}], [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b"}]]
)
def test_roots_are_file_uris_with_an_optional_name(roots: list[dict[str, Any]]) -> None:
    assert answered(ROOTS, Result({"roots": roots})) == {"roots": roots}


@pytest.mark.parametrize(
    ("result", "paths"),
    [
        ({}, ["result.roots"]),
        ({"roots": "file:///a"}, ["result.roots"]),
        ({"roots": [{"uri": "https://example.org"}]}, ["result.roots.0.uri"]),
        ({"roots": [{"uri": "file:///a"}, "file:///b", {}]}, ["result.roots.1.uri", "result.roots.2.uri"]),
        ({"roots": [{"uri": "file:///a", "name": 5}]}, ["result.roots.0.name"]),
    ],
)
def test_roots_of_the_wrong_shape_are_refused_by_the_path(result: dict[str, Any], paths: list[str]) -> None:
    assert list(violations(ROOTS, Result(result))) == paths


@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("kind", [FORM, URL])
def test_a_whole_elicitation_result_may_say_no_and_loses_an_empty_content(kind: RequestKind, action: str) -> None:
    assert answered(kind, Result({"action": action, "content": None, "_meta": {"x": 1}})) == {
        "action": action,
        "_meta": {"x": 1},
    }


def test_a_whole_elicitation_result_is_held_to_the_form_like_any_other() -> None:
    assert answered(FORM, Result({"action": "accept", "content": {"name": "Ann"}})) == {
        "action": "accept",
        "content": {"name": "Ann"},
    }
    assert violations(FORM, Result({"action": "accept", "content": {"name": 5}})) == {
        "content.name": 'is not of type "string"'
    }


@pytest.mark.parametrize(
    ("kind", "result", "path"),
    [
        (FORM, {}, "result.action"),
        (FORM, {"action": "maybe"}, "result.action"),
        (FORM, {"action": ["accept"]}, "result.action"),
        (FORM, {"action": "accept", "content": [1]}, "content"),
        (FORM, {"action": "accept", "content": "name"}, "content"),
        (FORM, {"action": "decline", "content": {"name": "Ann"}}, "content"),
        (URL, {"action": "accept", "content": {"name": "Ann"}}, "content"),
    ],
)
def test_a_whole_elicitation_result_of_the_wrong_shape_is_refused(
    kind: RequestKind, result: dict[str, Any], path: str
) -> None:
    assert list(violations(kind, Result(result))) == [path]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (FORM, Accept({"name": "x" * MAX_ANSWER_BYTES})),
        (SAMPLING, Text("x" * MAX_ANSWER_BYTES)),
        (SAMPLING, Reject("x" * MAX_ANSWER_BYTES)),
        (SAMPLING, sampled({**IMAGE, "data": "x" * MAX_ANSWER_BYTES})),
    ],
)
def test_an_answer_past_the_size_limit_is_refused(kind: RequestKind, given: ClientAnswer) -> None:
    assert list(violations(kind, given)) == ["answer"]


def test_an_answer_of_exactly_the_size_limit_is_taken() -> None:
    around = len(build_answer(FORM, NAME_FORM, Accept({"name": ""})).payload)
    answer = build_answer(FORM, NAME_FORM, Accept({"name": "x" * (MAX_ANSWER_BYTES - around)}))
    assert len(answer.payload) == MAX_ANSWER_BYTES


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan")])
def test_a_result_that_json_cannot_say_is_refused(value: Any) -> None:
    assert list(violations(SAMPLING, sampled(TEXT, extra=[value, 2**70]))) == ["answer"]


@pytest.mark.parametrize("kind", [FORM, URL])
def test_an_elicitation_that_nobody_answered_is_cancelled_with_the_reason(kind: RequestKind) -> None:
    answer = default_answer(kind, "nobody came")
    assert not answer.refused
    assert payload.loads(answer.payload) == {"action": "cancel", "_meta": {"hubbub/reason": "nobody came"}}


@pytest.mark.parametrize("kind", [SAMPLING, ROOTS])
def test_anything_else_that_nobody_answered_is_an_error(kind: RequestKind) -> None:
    assert default_answer(kind, "nobody came") == refusal_answer("nobody came")


CODEX = {"codex_elicitation": "exec-approval", "requestedSchema": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (Accept(), {"action": "accept", "content": {}, "decision": "approved"}),
        (Decline(), {"action": "decline", "decision": "denied"}),
        (Dismiss(), {"action": "cancel", "decision": "abort"}),
        (Accept({"decision": "approved_for_session"}), "approved_for_session"),
        (Accept({"decision": "denied"}), {"action": "decline", "decision": "denied"}),
        (Accept({"decision": "abort"}), {"action": "cancel", "decision": "abort"}),
        (Result({"action": "accept", "decision": "approved_for_session"}), "approved_for_session"),
        (
            Result({"action": "accept", "decision": {"approved_execpolicy_amendment": {}}}),
            {"approved_execpolicy_amendment": {}},
        ),
        (Result({"action": "decline"}), {"action": "decline", "decision": "denied"}),
        (Unchecked({"action": "accept", "content": {}}), {"action": "accept", "content": {}, "decision": "approved"}),
        (Unchecked({"action": "decline"}), {"action": "decline", "decision": "denied"}),
        (Unchecked({"odd": 1}), {"odd": 1}),
    ],
)
def test_an_agent_gets_the_decision_that_it_reads_beside_the_action(given: ClientAnswer, sent: Any) -> None:
    if not isinstance(sent, dict) or not {"action", "odd"} & sent.keys():
        sent = {"action": "accept", "content": {}, "decision": sent}
    assert answered(FORM, given, CODEX) == sent


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (Accept({"decision": "yes"}), {"content.decision": "is one of approved, approved_for_session, denied, abort"}),
        (Accept({"decision": "approved", "x": 1}), {"content.x": "is not a field of this form"}),
        (Accept({"decision": "denied", "x": 1}), {"content": "has nothing else with decision = denied"}),
        (
            Result({"action": "decline", "decision": "approved"}),
            {"result.decision": "does not go with the action decline"},
        ),
        (Result({"action": "decline", "decision": "any"}), {"result.decision": "does not go with the action decline"}),
        (Result({"action": "cancel", "decision": {}}), {"result.decision": "does not go with the action cancel"}),
        (Result({"action": "accept", "decision": "denied"}), {"result.decision": "does not go with the action accept"}),
        (
            Result({"action": "decline", "content": {"decision": "denied"}}),
            {"content.decision": "is given by accepting"},
        ),
    ],
)
def test_a_decision_that_an_agent_would_read_otherwise_is_refused(given: ClientAnswer, problem: dict[str, str]) -> None:
    assert violations(FORM, given, CODEX) == problem


def test_a_form_with_a_decision_of_its_own_is_a_form_like_others() -> None:
    own = {"type": "object", "properties": {"decision": {"type": "string"}}}
    asked = {**CODEX, "requestedSchema": own}
    given = Accept({"decision": "soup"})
    assert answered(FORM, given, asked) == {"action": "accept", "content": {"decision": "soup"}, "decision": "approved"}
    assert answered(FORM, given, {"requestedSchema": own}) == {"action": "accept", "content": {"decision": "soup"}}
