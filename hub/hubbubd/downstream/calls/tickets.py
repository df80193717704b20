"""Tickets: what a host gets for a call that takes longer than it waits, and how it fetches the result later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from hubbubd import bounds, payload
from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox.request_states import PendingRequest, RequestKind
from hubbubd.core.jsonrpc import HUB_FAILED, INVALID_PARAMS
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.errors import help_url

RESULT: Final = "hubbub_result"

CALL_ID: Final = "hubbub/callId"
"""The member of `_meta` that has the call's id."""

LONGEST_WAIT_S: Final = 86_400.0
"""The longest wait that is taken from a host, in seconds."""

MAX_NAMED: Final = 5
"""The most pending requests that one text names."""

ENTRY: Final = payload.dumps(
    {
        "name": RESULT,
        "title": "Get a result that took long",
        "description": (
            "Returns the result of an earlier tool call that had to wait for a person. Call it once the person has "
            "answered, with the call_id that the earlier call returned. It may be called again."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "call_id": {"type": "string", "description": "What the earlier call returned."},
                "wait_s": {
                    "type": "number",
                    "minimum": 0,
                    "description": "Seconds to wait for the result at most, if there is none yet.",
                },
            },
            "required": ["call_id"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
)
"""The entry of `tools/list`."""


@dataclass(frozen=True, slots=True)
class ResultQuery:
    """The id of the call whose result a host wants, and for how many seconds it waits; None if it does not say."""

    call_id: str
    wait_s: float | None


def parse_query(params: Mapping[str, Any]) -> ResultQuery:
    """Return what a call of RESULT asks for. Raises Refusal."""
    arguments: object = params.get("arguments")
    members = cast("Mapping[str, Any]", arguments if isinstance(arguments, Mapping) else {})
    call_id, wait_s = members.get("call_id"), members.get("wait_s")
    if not isinstance(call_id, str):
        raise Refusal(INVALID_PARAMS, f"{RESULT}: call_id must be a string")
    bounded_wait_s = bounds.clamp_seconds(wait_s, high=LONGEST_WAIT_S)
    if wait_s is not None and bounded_wait_s is None:
        raise Refusal(INVALID_PARAMS, f"{RESULT}: wait_s must be a number of seconds")
    return ResultQuery(call_id, bounded_wait_s)


def refusal_for_unknown_call(call_id: str) -> Refusal:
    """Return the error for the id of a call that does not exist, or that this host may not see."""
    reason = "CALL_NOT_FOUND"
    data = {"reason": reason, "help": help_url(reason)}
    return Refusal(INVALID_PARAMS, f"there is no call {call_id[:100]!r} of yours here, or it has been deleted", data)


def render_ticket(call: Call, questions: Sequence[PendingRequest] | None, *, as_error: bool) -> bytes:
    """Return the ticket of a call: a result in its place, which tells the model how to fetch the call's result later.

    `questions` are those the call waits for: empty if that is not certain, None if it waits for no answer. `as_error`
    marks the ticket as an error, for a tool whose output schema it would not fit.
    """
    if questions is None:
        text = f"{_explain_wait(call, questions)} Call {RESULT} with call_id {call.id} again for the result."
    else:
        verb = "approve or deny" if is_about_approval(questions) else "answer"
        text = (
            f"{_explain_wait(call, questions)} Ask the user to {verb} it ({make_inbox_command(questions)}), "
            f"then call {RESULT} with call_id {call.id} for the result."
        )
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "_meta": {CALL_ID: call.id}}
    return payload.dumps({**result, "isError": True} if as_error else result)


def refusal_for_late_answer(call: Call, questions: Sequence[PendingRequest] | None) -> Refusal:
    """Return the error for a call that takes longer than its host waits, where the host gets no ticket.

    `questions` are those the call waits for: empty if that is not certain, None if it waits for no answer.
    """
    reason = "ANSWER_AWAITED"
    text = (
        f"{_explain_wait(call, questions)} The call goes on: hubbub calls show {call.id} has its result "
        "once there is one."
    )
    ids = [each.id for each in (questions or ())[:MAX_NAMED]]
    return Refusal(HUB_FAILED, text, {"reason": reason, "help": help_url(reason), "call": call.id, "requests": ids})


def describe_wait(questions: Sequence[PendingRequest]) -> str:
    """Return in a few words what a call waits for, and the command with which people answer it."""
    awaited = "a person's approval" if is_about_approval(questions) else "an answer"
    return f"waiting for {awaited}: {make_inbox_command(questions)}"


def is_about_approval(questions: Sequence[PendingRequest]) -> bool:
    """Return whether one of these questions is an approval."""
    return any(each.kind is RequestKind.APPROVAL for each in questions)


def make_inbox_command(questions: Sequence[PendingRequest]) -> str:
    """Return the command that shows the first of these questions; without one, the command that lists all."""
    return f"hubbub inbox show {questions[0].id}" if questions else "hubbub inbox list"


def _explain_wait(call: Call, questions: Sequence[PendingRequest] | None) -> str:
    """Return a sentence about what a call waits for; `questions` as in `render_ticket`."""
    if questions is None:
        return f"{call.server} is still at work."
    if not questions:
        return f"{call.server} waits for an answer."
    if is_about_approval(questions):
        return f"This call of {call.server} is made once a person has approved it ({questions[0].id})."
    ids = ", ".join(each.id for each in questions[:MAX_NAMED])
    more = len(questions) - MAX_NAMED
    return f"{call.server} waits for an answer ({ids}{f' and {more} more' if more > 0 else ''})."
