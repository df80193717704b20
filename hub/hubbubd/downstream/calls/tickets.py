"""What a host gets of a call that takes longer than it waits, and how it gets the result later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from hubbubd import bounds, payload
from hubbubd.core.calls.call_states import Call
from hubbubd.core.jsonrpc import HUB_FAILED, INVALID_PARAMS
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.errors import help_url

RESULT: Final = "hubbub_result"

CALL_ID: Final = "hubbub/callId"
"""The member of `_meta` that has the call's id."""

LONGEST_WAIT_S: Final = 86_400.0
"""The longest wait that is taken from a host, in seconds."""

MAX_NAMED: Final = 5
"""Pending requests that are named."""

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
    bounded = bounds.seconds(wait_s, high=LONGEST_WAIT_S)
    if wait_s is not None and bounded is None:
        raise Refusal(INVALID_PARAMS, f"{RESULT}: wait_s must be a number of seconds")
    return ResultQuery(call_id, bounded)


def refuse_unknown(call_id: str) -> Refusal:
    """Return the error for a call that there is not, or not for this host."""
    reason = "CALL_NOT_FOUND"
    data = {"reason": reason, "help": help_url(reason)}
    return Refusal(INVALID_PARAMS, f"there is no call {call_id[:100]!r} of yours here, or it has been deleted", data)


def render_ticket(call: Call, asked: Sequence[str] | None, *, as_error: bool) -> bytes:
    """Return the result that says how to get the real one.

    `asked` are the ids of what the call waits for: empty if that is not certain, None if it waits for no answer.
    """
    if asked is None:
        text = f"{_describe_wait(call, asked)} Call {RESULT} with call_id {call.id} again for the result."
    else:
        where = f"hubbub inbox show {asked[0]}" if asked else "hubbub inbox list"
        text = (
            f"{_describe_wait(call, asked)} Ask the user to answer it ({where}), then call {RESULT} with call_id "
            f"{call.id} for the result."
        )
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "_meta": {CALL_ID: call.id}}
    return payload.dumps({**result, "isError": True} if as_error else result)


def refuse_late(call: Call, asked: Sequence[str] | None) -> Refusal:
    """Return the error where there are no tickets. `asked` as in `render_ticket`."""
    reason = "ANSWER_AWAITED"
    text = (
        f"{_describe_wait(call, asked)} The call goes on: hubbub calls show {call.id} has its result once there is one."
    )
    named = list((asked or ())[:MAX_NAMED])
    return Refusal(HUB_FAILED, text, {"reason": reason, "help": help_url(reason), "call": call.id, "requests": named})


def _describe_wait(call: Call, asked: Sequence[str] | None) -> str:
    if asked is None:
        return f"{call.server} is still at work."
    if not asked:
        return f"{call.server} waits for an answer."
    named = ", ".join(asked[:MAX_NAMED])
    more = len(asked) - MAX_NAMED
    return f"{call.server} waits for an answer ({named}{f' and {more} more' if more > 0 else ''})."
