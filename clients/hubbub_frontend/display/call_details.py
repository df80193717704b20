"""What a call was sent with, beside what it asks: who approves it has to know."""

import contextlib
from collections.abc import Sequence

from hubbub_client.data.records import Call, PendingRequest
from hubbub_client.errors import HubbubError
from hubbub_client.hub import Hub
from hubbub_client.payload import as_object
from hubbub_frontend.display import text
from hubbub_frontend.display.approvals import render_rows
from hubbub_frontend.display.argument_rows import argument_rows
from hubbub_frontend.display.text import DetailText
from hubbub_frontend.forms import typed_text

MAX_ARGUMENTS = 60
MAX_VALUE_CHARS = 2000
METHODS_WITH_ARGUMENTS = frozenset(("tools/call", "prompts/get"))


async def fetch_asking_call(hub: Hub, request: PendingRequest) -> Call | None:
    """Return the call that asks, or the only candidate; None for several candidates, or if the hub shows no call."""
    ids = [request.call_id] if request.call_id else [*request.candidate_call_ids]
    if len(ids) != 1:
        return None
    try:
        return await hub.calls.get(ids[0])
    except HubbubError:  # a call may be deleted before its requests are, or this person may not see the call
        return None


async def fetch_earlier_calls(hub: Hub, ids: Sequence[str]) -> Sequence[Call]:
    """Return the calls with these ids, except those that the hub does not return any more."""
    calls: list[Call] = []
    for id_ in ids:
        with contextlib.suppress(HubbubError):
            calls.append(await hub.calls.get(id_))
    return calls


def add_call_approval(page: DetailText, call: Call) -> None:
    """Add which rule wants a call approved, who has approved it, and its changed arguments.

    Add nothing for a call without approval.
    """
    if (approval := call.approval) is None:
        return
    page.heading("Approval").fact("rule", text.line(approval.rule))
    page.fact("approved by", text.line(", ".join(approval.approved_by)))
    page.fact("remembered", approval.remembered_id)
    page.fact("state", "it may be sent" if approval.granted else "it may not be sent")
    if approval.changed_arguments is not None:
        page.paragraph("It is sent with these arguments, in place of those that were asked for:", "yellow")
        render_rows(page, argument_rows(as_object(approval.changed_arguments), {}))


def add_arguments(page: DetailText, call: Call | None) -> None:
    """List the arguments of a call by name, with their line breaks; add nothing for a call without arguments."""
    params = as_object(call and call.params)
    arguments = as_object(params.get("arguments")) if call and call.method in METHODS_WITH_ARGUMENTS else params
    if not arguments:
        return
    page.heading("Called with")
    for name, value in list(arguments.items())[:MAX_ARGUMENTS]:
        value_text = text.safe_text(typed_text(value), MAX_VALUE_CHARS)
        if "\n" in value_text or len(name) >= text.LABEL_WIDTH:
            page.paragraph(text.line(name), "dim")
            page.paragraph("\n".join(f"  {each}" for each in value_text.split("\n")))
        else:
            page.fact(name, value_text or '""')
    if len(arguments) > MAX_ARGUMENTS:
        page.paragraph(f"and {len(arguments) - MAX_ARGUMENTS} more", "dim")
