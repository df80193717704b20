"""Asks a person at the terminal whether a call may be made. Enter alone approves nothing."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from hubbub_cli.output.printer import note
from hubbub_cli.terminal.prompts import choose_letter, edit_text, print_text, read_line
from hubbub_client.data.approvals import ApprovalRequest
from hubbub_client.data.records import AnswerOptions, PendingRequest
from hubbub_client.errors import FailedPrecondition, InvalidArgument
from hubbub_client.hub import Hub
from hubbub_client.numbers import whole_text
from hubbub_frontend.display.approvals import approval_view, describe_span, render_approval, render_rows
from hubbub_frontend.display.argument_rows import argument_rows
from hubbub_frontend.display.text import DetailText, editable_json
from hubbub_frontend.forms import parse_json

DENY, LATER = "[d]eny", "[l]ater"


async def ask_to_approve(hub: Hub, request: PendingRequest, how: AnswerOptions) -> PendingRequest | None:
    """Show a call, approve or deny it as the person says, and return the answered request; None if they leave it open.

    If the arguments have changed meanwhile, the call is shown and asked about again. Raises HubbubError.
    """
    while True:
        _print_approval(request)
        try:
            return await _ask_for_decision(request, how)
        except FailedPrecondition as error:
            if error.reason != "ARGUMENTS_CHANGED":
                raise
            note(f"\n{error.message}")
            request = await hub.inbox.get(request.id)


def _print_approval(request: PendingRequest) -> None:
    """Print the call that waits for approval."""
    page = DetailText()
    render_approval(page, request)
    print_text(page.text)


async def _ask_for_decision(request: PendingRequest, how: AnswerOptions) -> PendingRequest | None:
    """Ask the person until the hub accepts a decision, and return the answered request; None if they leave it open."""
    approval = request.approval
    if approval is None:  # what would be approved is not known
        choices = {"d": DENY, "l": LATER}
    else:
        choices = {
            "a": "[a]pprove",
            **({"r": "approve and [r]emember"} if approval.rule.remember_s else {}),
            **({"s": "approve with [s]uggestions"} if approval.suggestions else {}),
            **({"c": "[c]hange"} if approval.rule.edit else {}),
            "d": DENY,
            "l": LATER,
        }
    while True:
        letter = await choose_letter(choices)
        try:
            match letter, approval:
                case "a", _:
                    return await request.approve(**how)
                case "r", ApprovalRequest():
                    return await _approve_and_remember(request, approval, how)
                case "s", ApprovalRequest():
                    if chosen_indices := await _choose_suggestions(request):
                        return await request.approve(suggestions=chosen_indices, **how)
                case "c", ApprovalRequest():
                    if (changed := await _edit_arguments(approval)) is not None:
                        return await request.approve(changed, **how)
                case "d", _:
                    return await request.deny(await read_line("why? (the caller sees it) "), **how)
                case _:
                    return None
        except InvalidArgument as error:
            note(error.to_json()["message"])


async def _approve_and_remember(
    request: PendingRequest, approval: ApprovalRequest, how: AnswerOptions
) -> PendingRequest:
    """Ask for how long, and for which arguments; approve the call and those like it; return the answered request."""
    spans_s = approval.rule.remember_s
    for number, seconds in enumerate(spans_s, 1):
        note(f"  {number}) for {describe_span(seconds)}")
    while (number := whole_text(await read_line("for how long [1]: ") or "1")) is None or not 1 <= number <= len(
        spans_s
    ):
        note(f"type a number from 1 to {len(spans_s)}")
    typed = await read_line("for these arguments only (y/n) [y]: ")
    same_arguments = not typed.lower().startswith("n")
    return await request.approve(remember_s=spans_s[number - 1], same_arguments=same_arguments, **how)


async def _choose_suggestions(request: PendingRequest) -> Sequence[int]:
    """Return the indices of the suggestions that the person accepts; none if they go back."""
    view = approval_view(request)
    offered = {each.index: each.label for each in view.suggestions} if view is not None else {}
    for index, label in offered.items():
        note(f"  {index}) {label}")
    while typed := (await read_line("which, as 0 2 (Enter alone goes back): ")).replace(",", " ").split():
        chosen = [index for index in map(whole_text, typed) if index is not None and index in offered]
        if len(chosen) == len(typed):
            return chosen
        note(f"type numbers of {', '.join(map(str, offered))}")
    return ()


async def _edit_arguments(approval: ApprovalRequest) -> Mapping[str, Any] | None:
    """Have the person edit the arguments of a call, and return what they agree to send; None if they go back."""
    text = editable_json(approval.current_arguments)
    while (edited := await edit_text(text, "arguments.json")) is not None:
        text = edited
        try:
            changed = parse_json(edited)
        except ValueError as error:
            note(f"this cannot be sent: {error}")
        else:
            if isinstance(changed, dict):
                return await _confirm_arguments(approval, cast("dict[str, Any]", changed))
            note("the arguments must be a JSON object")
        if await choose_letter({"e": "[e]dit again", "b": "[b]ack"}) == "b":
            return None
    return None


async def _confirm_arguments(approval: ApprovalRequest, changed: dict[str, Any]) -> Mapping[str, Any] | None:
    """Show changed arguments, and return them if the person wants to send them; None if not, or if nothing changed."""
    # Compared as JSON, where 1 is not true.
    if json.dumps(changed, sort_keys=True) == json.dumps(approval.current_arguments, sort_keys=True):
        note("nothing is changed")
        return None
    page = DetailText().paragraph("these are sent in place of those that were asked for:")
    render_rows(page, argument_rows(changed, approval.tool.input_schema))
    print_text(page.text)
    return changed if await choose_letter({"a": "[a]pprove them", "b": "[b]ack"}) == "a" else None
