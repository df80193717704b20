"""Tickets: what a host gets of a call that takes longer than it waits, and how it fetches the result later."""

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
    """Which result a host wants, and for how many seconds it waits; None if it does not say."""

    call_id: str
    wait_s: float | None


def parse_query(params: Mapping[str, Any]) -> ResultQuery:
    """Return what a call of RESULT asks for. Raises Refusal."""
    arguments: object = params.get("arguments")
    members = cast("Mapping[str, Any]", arguments if isinstance(arguments, Mapping) else {})
    call_id, wait_s = members.get("call_id"), members.get("wait_s")
    if not isinstance(call_id, str):
        raise Refusal(INVALID_PARAMS, f"{RESULT}: call_id must be a string")
    bounded = bounds.clamp_seconds(wait_s, high=LONGEST_WAIT_S)
    if wait_s is not None and bounded is None:
        raise Refusal(INVALID_PARAMS, f"{RESULT}: wait_s must be a number of seconds")
    return ResultQuery(call_id, bounded)


def refusal_for_unknown_call(call_id: str) -> Refusal:
    """Return the error for the id of a call that does not exist, or that this host may not see."""
    reason = "CALL_NOT_FOUND"
    data = {"reason": reason, "help": help_url(reason)}
    return Refusal(INVALID_PARAMS, f"there is no call {call_id[:100]!r} of yours here, or it has been deleted", data)


def render_ticket(call: Call, asked: Sequence[PendingRequest] | None, *, as_error: bool) -> bytes:
    """Return the ticket of a call: a result in place of the call's own, which tells the model how to fetch that later.

    `asked` is what the call waits for: empty if that is not certain, None if the call waits for no answer. `as_error`
    marks the ticket as an error, for a tool whose output schema it would not fit.
    """
    if asked is None:
        text = f"{_describe_wait(call, asked)} Call {RESULT} with call_id {call.id} again for the result."
    else:
        do = "approve or deny" if is_about_approval(asked) else "answer"
        text = (
            f"{_describe_wait(call, asked)} Ask the user to {do} it ({where_to_answer(asked)}), then call {RESULT} "
            f"with call_id {call.id} for the result."
        )
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "_meta": {CALL_ID: call.id}}
    return payload.dumps({**result, "isError": True} if as_error else result)


def refusal_for_late_answer(call: Call, asked: Sequence[PendingRequest] | None) -> Refusal:
    """Return the error for a call that takes longer than its host waits, where the host gets no ticket.

    `asked` is what the call waits for: empty if that is not certain, None if the call waits for no answer.
    """
    reason = "ANSWER_AWAITED"
    text = (
        f"{_describe_wait(call, asked)} The call goes on: hubbub calls show {call.id} has its result once there is one."
    )
    named = [each.id for each in (asked or ())[:MAX_NAMED]]
    return Refusal(HUB_FAILED, text, {"reason": reason, "help": help_url(reason), "call": call.id, "requests": named})


def describe_question(asked: Sequence[PendingRequest]) -> str:
    """Return in a few words what a call waits for, and the command with which people answer it."""
    what = "a person's approval" if is_about_approval(asked) else "an answer"
    return f"waiting for {what}: {where_to_answer(asked)}"


def is_about_approval(asked: Sequence[PendingRequest]) -> bool:
    """Return whether one of these questions is an approval."""
    return any(each.kind is RequestKind.APPROVAL for each in asked)


def where_to_answer(asked: Sequence[PendingRequest]) -> str:
    """Return the command that shows the first question, or all if none is certain."""
    return f"hubbub inbox show {asked[0].id}" if asked else "hubbub inbox list"


def _describe_wait(call: Call, asked: Sequence[PendingRequest] | None) -> str:
    """Return a sentence about what a call waits for: `asked`, empty if not certain, None if it waits for no answer."""
    if asked is None:
        return f"{call.server} is still at work."
    if not asked:
        return f"{call.server} waits for an answer."
    if is_about_approval(asked):
        return f"This call of {call.server} is made once a person has approved it ({asked[0].id})."
    named = ", ".join(each.id for each in asked[:MAX_NAMED])
    more = len(asked) - MAX_NAMED
    return f"{call.server} waits for an answer ({named}{f' and {more} more' if more > 0 else ''})."
