"""Asks a person at the terminal for an answer, in the way that fits the kind of pending request."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from hubbub_cli.output.printer import note
from hubbub_cli.terminal.browser import browse
from hubbub_cli.terminal.prompts import choose, edit, read_line, show
from hubbub_cli.terminal.wait import settled
from hubbub_client.data.records import How, PendingRequest
from hubbub_client.errors import HubbubError, InvalidArgument
from hubbub_client.hub import Hub
from hubbub_client.payload import as_object, as_objects
from hubbub_frontend.display.content import content_text as spoken
from hubbub_frontend.display.records import question_text
from hubbub_frontend.forms import Field, fields, parse_value, typed_text

# Pending requests of the hub itself, to be let in at a server; the browser answers them when it comes back.
AUTHORIZATION = "auth_"
MAX_CHARS = 20_000
MAX_CHOICES = 50
NOTHING = "-"
WAYS = {"s": "[s]end it", "d": "[d]ecline", "c": "[c]ancel", "l": "[l]ater"}
LEAVES = {
    word: letter
    for letter, name in (("d", "decline"), ("c", "cancel"), ("l", "later"))
    for word in (f"!{letter}", f"!{name}")
}
"""What can be typed instead of a value."""


async def ask(hub: Hub, request: PendingRequest, how: How) -> PendingRequest | None:
    """Ask the person at the terminal and return their answer; None if they leave it open.

    An answer that the hub refuses is asked for again. Raises HubbubError.
    """
    try:
        match request.kind:
            case "elicitation_form":
                return await _elicit(request, how)
            case "elicitation_url":
                return await _visit(hub, request, how)
            case "sampling":
                return await _sample(request, how)
            case _:
                return await _roots(request, how)
    except EOFError:
        return None


async def _elicit(request: PendingRequest, how: How) -> PendingRequest | None:
    """The form first. Then Enter sends it; the other ways out can be typed in any field, too."""
    note(_short(question_text(request)))
    form = fields(as_object(request.request).get("requestedSchema"))
    if form:
        note("Enter takes what is in brackets; !d declines, !c cancels, !l leaves it for later")
    content: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    asked = form
    while True:
        try:
            content = await fill(asked, content, wrong)
            way = await choose(WAYS | ({"e": "[e]dit"} if form else {}), default="s")
        except Left as left:
            way = left.way
        match way:
            case "s":
                try:
                    return await request.accept(content, **how)
                except InvalidArgument as error:
                    note(error.to_json()["message"])
                    wrong = {path.removeprefix("content.").split(".")[0]: said for path, said in error.violations}
                    asked = [field for field in form if field.name in wrong] or form
            case "e":
                asked, wrong = form, {}
            case "d":
                return await request.decline(**how)
            case "c":
                return await request.cancel(**how)
            case _:
                return None


class Left(Exception):
    """The person leaves a form by one of the other ways, `way`: the letter of decline, cancel or later."""

    def __init__(self, way: str) -> None:
        super().__init__(way)
        self.way = way


async def fill(asked: Sequence[Field], before: Mapping[str, Any], wrong: Mapping[str, str]) -> dict[str, Any]:
    """Ask for the fields of a form and return its content; `before` has the defaults, as typed last.

    Raises Left, and EOFError at the end of input.
    """
    content = {**before}
    for field in asked:
        if problem := wrong.get(field.name):
            note(f"  {field.title}: {problem}")
        value = await _value(field, content.get(field.name, field.default))
        if value is None:
            content.pop(field.name, None)
        else:
            content[field.name] = value
    return content


async def _value(field: Field, default: Any) -> Any:
    if field.description:
        note(f"  {_short(field.description)}")
    for number, (_, title) in enumerate(field.choices[:MAX_CHOICES], 1):
        note(f"  {number}) {title}" if field.kind in ("choice", "choices") else f"  {title}")
    if len(field.choices) > MAX_CHOICES:
        note(f"  and {len(field.choices) - MAX_CHOICES} more, which can be typed as they are called")
    omissible = default is not None and not field.required
    hints = [field.kind] if field.kind in ("integer", "number") else ["JSON"] if field.kind == "json" else []
    hints += ["y/n"] if field.kind == "boolean" else ["numbers, with commas"] if field.kind == "choices" else []
    hints += [field.format] if field.format and field.kind == "string" else []
    hints += [] if field.required else ["optional"]
    hint = f" ({', '.join(hints)})" if hints else ""
    offered = f" [{typed_text(default)}]" if default is not None else ""
    while True:
        text = await read_line(f"{field.title}{hint}{offered}: ")
        if text in LEAVES:
            raise Left(LEAVES[text])
        if text == NOTHING and omissible:
            return None
        if not text and (default is not None or not field.required):
            return default
        try:
            return parse_value(field, text)
        except ValueError as error:
            note(f"  {error}")


async def _visit(hub: Hub, request: PendingRequest, how: How) -> PendingRequest | None:
    from hubbub_frontend.display.text import render_url

    note(_short(str(as_object(request.request).get("message", ""))))
    url = str(as_object(request.request).get("url", ""))
    show(render_url(url))
    if str(as_object(request.request).get("elicitationId", "")).startswith(AUTHORIZATION):
        return await _authorize(hub, request, url, how)
    choices = {"o": "[o]pen it in the browser here", "a": "[a]gree and open it elsewhere"}
    while True:
        match await choose({**choices, "d": "[d]ecline", "c": "[c]ancel", "l": "[l]ater"}):
            case "o":
                if await browse(url):
                    return await request.accept(**how)
            case "a":
                return await request.accept(**how)
            case "d":
                return await request.decline(**how)
            case "c":
                return await request.cancel(**how)
            case _:
                return None


async def _authorize(hub: Hub, request: PendingRequest, url: str, how: How) -> PendingRequest | None:
    """Let the hub in at a server. The browser that comes back answers, or the address that it shows."""
    while True:
        match await choose({"o": "[o]pen it in the browser here", "p": "[p]aste", "d": "[d]ecline", "l": "[l]ater"}):
            case "o":
                if await browse(url) and (found := await _returned(hub, request)) is not None:
                    return found
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


async def _returned(hub: Hub, request: PendingRequest) -> PendingRequest | None:
    """Wait until the browser has come back to the hub; None if the person wants something else."""
    found: PendingRequest | None = None

    async def wait() -> None:
        nonlocal found
        with contextlib.suppress(HubbubError):
            found = await settled(hub, request)
            note("")
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        with contextlib.suppress(EOFError):
            await read_line("waiting for the browser to come back to the hub; Enter for something else ")
        group.cancel_scope.cancel()
    return found


async def _sample(request: PendingRequest, how: How) -> PendingRequest | None:
    _show_sampling(as_object(request.request))
    text = ""
    while True:
        choices = {"r": "[r]eply in a line", "e": "write in the [e]ditor", "x": "[x] refuse", "l": "[l]ater"}
        match await choose({**({"s": "[s]end it"} if text else {}), **choices}):
            case "r":
                if text := await read_line("reply: "):
                    return await request.reply_text(text, **how)
            case "e":
                text = await edit(text) or text
                if text:
                    note(text)
            case "s":
                return await request.reply_text(text, **how)
            case "x":
                return await request.reject(await read_line("why? ") or "refused", **how)
            case _:
                return None


def _show_sampling(params: Mapping[str, Any]) -> None:
    if prompt := params.get("systemPrompt"):
        note(f"system prompt: {_short(str(prompt))}")
    for message in as_objects(params.get("messages")):
        note(f"{message.get('role')}: {_short(spoken(message))}")
    preferences = as_object(params.get("modelPreferences"))
    if preferences:
        note(f"model preferences: {json.dumps(preferences, ensure_ascii=False)}")
    if params.get("maxTokens"):
        note(f"at most {params['maxTokens']} tokens")


async def _roots(request: PendingRequest, how: How) -> PendingRequest | None:
    note(question_text(request))
    text = await read_line("file:// addresses with spaces between, !MESSAGE to refuse, nothing for later: ")
    if not text:
        return None
    if text.startswith("!"):
        return await request.reject(text[1:], **how)
    return await request.reply({"roots": [{"uri": uri} for uri in text.split()]}, **how)


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}… ({len(text) - MAX_CHARS} characters more)"
