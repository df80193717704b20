"""Asks a person at the terminal for an answer, as the kind of the pending request needs it."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from hubbub_cli.output.printer import note
from hubbub_cli.terminal.browser import open_page
from hubbub_cli.terminal.prompts import choose_letter, edit_text, print_text, read_line
from hubbub_cli.terminal.wait import wait_until_closed
from hubbub_client.data.records import AnswerOptions, PendingRequest
from hubbub_client.errors import HubbubError, InvalidArgument
from hubbub_client.hub import Hub
from hubbub_client.payload import as_object, as_objects
from hubbub_frontend.display.content import content_text as describe_content
from hubbub_frontend.display.decisions import decision_choices, find_wider_decision
from hubbub_frontend.display.records import question_text
from hubbub_frontend.forms import Field, fields, parse_value, typed_text
from hubbub_shared.agent_decisions import AgentDecision

# How ids begin of requests that the hub itself makes, to be let in at a server; the browser answers them when it comes
# back to the hub.
AUTHORIZATION_PREFIX = "auth_"
MAX_SHOWN_CHARS = 20_000
MAX_CHOICES = 50
TYPED_NOTHING = "-"
FORM_ENDINGS = {"s": "[s]end it", "d": "[d]ecline", "c": "[c]ancel", "l": "[l]ater"}
TYPED_ENDINGS = {
    word: letter
    for letter, name in (("d", "decline"), ("c", "cancel"), ("l", "later"))
    for word in (f"!{letter}", f"!{name}")
}
"""What can be typed instead of a value."""


async def ask_for_answer(hub: Hub, request: PendingRequest, how: AnswerOptions) -> PendingRequest | None:
    """Ask the person at the terminal and return their answer; None if they leave it open.

    `how` has the options of their answer, such as the id of the claim that they hold. If the hub refuses an answer as
    wrong, the person is asked again. Raises HubbubError.
    """
    try:
        match request.kind:
            case "elicitation_form":
                return await _ask_for_form(request, how)
            case "elicitation_url":
                return await _ask_to_visit(hub, request, how)
            case "sampling":
                return await _ask_for_message(request, how)
            case "approval":
                from hubbub_cli.terminal.answer_approval import ask_to_approve  # late, with what shows an approval

                return await ask_to_approve(hub, request, how)
            case _:
                return await _ask_for_roots(request, how)
    except EOFError:
        return None


async def _ask_for_form(request: PendingRequest, how: AnswerOptions) -> PendingRequest | None:
    """Have the person fill in a form, and send it, decline or cancel; return the answered request.

    None if they leave the form open, which they may at any field. A form by which a coding agent asks for a decision
    is shown as a choice.
    """
    note(_cut_long_text(question_text(request)))
    _print_extra_members(request)
    if choices := decision_choices(request):
        is_option = choices[0].is_field
        return await (_ask_for_option(request, choices, how) if is_option else _ask_for_decision(request, how))
    all_fields = fields(as_object(request.request).get("requestedSchema"))
    if all_fields:
        note("Enter takes what is in brackets; !d declines, !c cancels, !l leaves it for later")
    content: dict[str, Any] = {}
    problems: dict[str, str] = {}
    fields_to_ask = all_fields
    while True:
        try:
            content = await fill_in_form(fields_to_ask, content, problems)
            ending = await choose_letter(FORM_ENDINGS | ({"e": "[e]dit"} if all_fields else {}), default="s")
        except FormLeft as error:
            ending = error.letter
        match ending:
            case "s":
                try:
                    return await request.accept(content, **how)
                except InvalidArgument as error:
                    note(error.to_json()["message"])
                    problems = {
                        path.removeprefix("content.").split(".")[0]: problem for path, problem in error.violations
                    }
                    # A problem that is of no field concerns the whole form.
                    fields_to_ask = [field for field in all_fields if field.name in problems] or all_fields
            case "e":
                fields_to_ask, problems = all_fields, {}
            case "d":
                return await request.decline(**how)
            case "c":
                return await request.cancel(**how)
            case _:
                return None


def _print_extra_members(request: PendingRequest) -> None:
    """Print what a coding agent asks to do, and the members of a request that MCP does not define, if there are any."""
    if request.agent is None and not request.more:
        return
    from hubbub_frontend.display.agents import render_agent, render_more  # late, with what they import
    from hubbub_frontend.display.text import DetailText

    page = DetailText()
    render_agent(page, request)
    render_more(page, request)
    print_text(page.text)


async def _ask_for_decision(request: PendingRequest, how: AnswerOptions) -> PendingRequest | None:
    """Ask whether a coding agent may do what it asks for, and return the answered request.

    None if the person leaves the request open.
    """
    wider_decision = find_wider_decision(request)
    approve_choices = {"a": "[a]pprove", **({"s": "approve for this [s]ession"} if wider_decision is not None else {})}
    match await choose_letter({**approve_choices, "d": "[d]eny", "x": "deny and stop the agent [x]", "l": "[l]ater"}):
        case "a":
            return await request.accept(**how)
        case "s" if wider_decision is not None:
            return await request.accept({wider_decision.member: wider_decision.value}, **how)
        case "d":
            return await request.decline(**how)
        case "x":
            return await request.cancel(**how)
        case _:
            return None


async def _ask_for_option(
    request: PendingRequest, choices: Sequence[AgentDecision], how: AnswerOptions
) -> PendingRequest | None:
    """Ask for one of the options that a coding agent offers, by its number, and return the answered request.

    None if the person leaves the request open.
    """
    options = {str(number): f"[{number}] {_format_option_label(each)}" for number, each in enumerate(choices, 1)}
    decline_choice = {} if any(each.rejects for each in choices) else {"d": "[d]ecline"}
    letter = await choose_letter({**options, **decline_choice, "l": "[l]ater"})
    if letter in options:
        chosen = choices[int(letter) - 1]
        return await request.accept({chosen.member: chosen.value}, **how)
    return await request.decline(**how) if letter == "d" else None


def _format_option_label(choice: AgentDecision) -> str:
    return f"{choice.label} ({choice.note})" if choice.note else choice.label


class FormLeft(Exception):
    """The person leaves a form without sending it; `letter` is that of decline (d), cancel (c) or later (l)."""

    def __init__(self, letter: str) -> None:
        super().__init__(letter)
        self.letter = letter


async def fill_in_form(
    fields_to_ask: Sequence[Field], initial_values: Mapping[str, Any], problems: Mapping[str, str]
) -> dict[str, Any]:
    """Ask for the fields of a form, and return its content. `initial_values` has, by field, what was typed last.

    `problems` says by field what was wrong with these values; each is printed before its field.

    Raises FormLeft, and EOFError at the end of input.
    """
    content = {**initial_values}
    for field in fields_to_ask:
        if problem := problems.get(field.name):
            note(f"  {field.title}: {problem}")
        value = await _ask_for_value(field, content.get(field.name, field.default))
        if value is None:
            content.pop(field.name, None)
        else:
            content[field.name] = value
    return content


async def _ask_for_value(field: Field, default: Any) -> Any:
    """Return the value that a person types for a field, else the default; None to leave the field out.

    A text that is no value of the field is asked for again. Raises FormLeft, EOFError.
    """
    if field.description:
        note(f"  {_cut_long_text(field.description)}")
    for number, (_, title) in enumerate(field.choices[:MAX_CHOICES], 1):
        note(f"  {number}) {title}" if field.kind in ("choice", "choices") else f"  {title}")
    if len(field.choices) > MAX_CHOICES:
        note(f"  and {len(field.choices) - MAX_CHOICES} more, which can be typed as they are called")
    # Enter alone takes the default, so another word leaves such a field out.
    can_omit = default is not None and not field.required
    hint = _describe_input(field)
    default_hint = f" [{typed_text(default)}]" if default is not None else ""
    while True:
        text = await read_line(f"{field.title}{hint}{default_hint}: ")
        if text in TYPED_ENDINGS:
            raise FormLeft(TYPED_ENDINGS[text])
        if text == TYPED_NOTHING and can_omit:
            return None
        if not text and (default is not None or not field.required):
            return default
        try:
            return parse_value(field, text)
        except ValueError as error:
            note(f"  {error}")


def _describe_input(field: Field) -> str:
    """Return what can be typed for a field, and whether it is optional, in brackets; empty for a required free text."""
    hints: list[str] = []
    match field.kind:
        case "integer" | "number":
            hints.append(field.kind)
        case "json":
            hints.append("JSON")
        case "boolean":
            hints.append("y/n")
        case "choices":
            hints.append("numbers, with commas")
        case "string" if field.format:
            hints.append(field.format)
        case _:
            pass
    if not field.required:
        hints.append("optional")
    return f" ({', '.join(hints)})" if hints else ""


async def _ask_to_visit(hub: Hub, request: PendingRequest, how: AnswerOptions) -> PendingRequest | None:
    """Print where a page leads, and open it or answer as the person decides; return the answered request.

    None if they leave it open.
    """
    from hubbub_frontend.display.text import render_url

    note(_cut_long_text(str(as_object(request.request).get("message", ""))))
    url = str(as_object(request.request).get("url", ""))
    print_text(render_url(url))
    _print_extra_members(request)
    if str(as_object(request.request).get("elicitationId", "")).startswith(AUTHORIZATION_PREFIX):
        return await _ask_to_authorize(hub, request, url, how)
    choices = {"o": "[o]pen it in the browser here", "a": "[a]gree and open it elsewhere"}
    while True:
        match await choose_letter({**choices, "d": "[d]ecline", "c": "[c]ancel", "l": "[l]ater"}):
            case "o":
                if await open_page(url):  # else the person is asked again
                    return await request.accept(**how)
            case "a":
                return await request.accept(**how)
            case "d":
                return await request.decline(**how)
            case "c":
                return await request.cancel(**how)
            case _:
                return None


async def _ask_to_authorize(hub: Hub, request: PendingRequest, url: str, how: AnswerOptions) -> PendingRequest | None:
    """Have the person log the hub in at a server, and return the closed request; None if they leave it open.

    The browser answers the request when it comes back to the hub. Else they paste the address where it ended.
    """
    while True:
        match await choose_letter(
            {"o": "[o]pen it in the browser here", "p": "[p]aste", "d": "[d]ecline", "l": "[l]ater"}
        ):
            case "o":
                if await open_page(url) and (answered_request := await _wait_for_browser(hub, request)) is not None:
                    return answered_request
            case "p":
                address = await read_line("the address where the browser ended: ")
                try:
                    return await request.accept({"redirect_url": address}, **how)
                except InvalidArgument as error:
                    note(error.to_json()["message"])
            case "d":
                return await request.decline(**how)
            case _:
                return None


async def _wait_for_browser(hub: Hub, request: PendingRequest) -> PendingRequest | None:
    """Wait until the browser has come back to the hub, and return the closed request.

    None if the person presses Enter before, for something else.
    """
    closed_request: PendingRequest | None = None

    async def wait_until_closed_elsewhere() -> None:
        """Wait until the request is closed, then end the prompt of the person."""
        nonlocal closed_request
        with contextlib.suppress(HubbubError):  # then only the person ends the prompt
            closed_request = await wait_until_closed(hub, request)
            note("")  # else the next line stands behind the prompt
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(wait_until_closed_elsewhere)
        with contextlib.suppress(EOFError):
            await read_line("waiting for the browser to come back to the hub; Enter for something else ")
        group.cancel_scope.cancel()
    return closed_request


async def _ask_for_message(request: PendingRequest, how: AnswerOptions) -> PendingRequest | None:
    """Have the person reply to a sampling or refuse it, and return the answered request; None if it is left open."""
    _print_sampling(as_object(request.request))
    _print_extra_members(request)
    reply = ""
    while True:
        choices = {"r": "[r]eply in a line", "e": "write in the [e]ditor", "x": "[x] refuse", "l": "[l]ater"}
        match await choose_letter({**({"s": "[s]end it"} if reply else {}), **choices}):
            case "r":
                if reply := await read_line("reply: "):
                    return await request.reply_text(reply, **how)
            case "e":
                reply = await edit_text(reply) or reply
                if reply:
                    note(reply)
            case "s":
                return await request.reply_text(reply, **how)
            case "x":
                return await request.reject(await read_line("why? ") or "refused", **how)
            case _:
                return None


def _print_sampling(params: Mapping[str, Any]) -> None:
    """Print what a sampling would ask a model, and with which preferences and limit."""
    if prompt := params.get("systemPrompt"):
        note(f"system prompt: {_cut_long_text(str(prompt))}")
    for message in as_objects(params.get("messages")):
        note(f"{message.get('role')}: {_cut_long_text(describe_content(message))}")
    preferences = as_object(params.get("modelPreferences"))
    if preferences:
        note(f"model preferences: {json.dumps(preferences, ensure_ascii=False)}")
    if params.get("maxTokens"):
        note(f"at most {params['maxTokens']} tokens")


async def _ask_for_roots(request: PendingRequest, how: AnswerOptions) -> PendingRequest | None:
    """Have the person type the roots or refuse them, and return the answered request; None if it is left open."""
    note(question_text(request))
    _print_extra_members(request)
    text = await read_line("file:// addresses with spaces between, !MESSAGE to refuse, nothing for later: ")
    if not text:
        return None
    if text.startswith("!"):
        return await request.reject(text[1:], **how)
    return await request.reply({"roots": [{"uri": uri} for uri in text.split()]}, **how)


def _cut_long_text(text: str) -> str:
    """Return a text, cut if it is longer than MAX_SHOWN_CHARS."""
    return (
        text
        if len(text) <= MAX_SHOWN_CHARS
        else f"{text[:MAX_SHOWN_CHARS]}… ({len(text) - MAX_SHOWN_CHARS} characters more)"
    )
