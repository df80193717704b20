"""Asking a person at the terminal, without stopping what else goes on."""

import asyncio
import json
import sys
from typing import Any

from hubbub_client.cli.output import note
from hubbub_client.errors import InvalidArgument
from hubbub_client.forms import Field, fields, parse
from hubbub_client.records import PendingRequest
from hubbub_client.wording import clean, question

CHOICES = {"a": "accept", "d": "decline", "c": "cancel", "l": "later"}


async def read_line(prompt: str) -> str:
    """One line from the terminal. A cancelled wait leaves nothing behind. Raises EOFError at the end of input."""
    print(clean(prompt), end="", file=sys.stderr, flush=True)
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()


async def ask(request: PendingRequest) -> PendingRequest | None:
    """Asks the person at the terminal and gives their answer; None when they leave it open.

    An answer that the hub finds wrong is asked for once more. Raises HubbubError.
    """
    note(question(request))
    try:
        match request.kind:
            case "elicitation_form" | "elicitation_url":
                return await _elicit(request)
            case "sampling":
                return await _sample(request)
            case _:
                return await _roots(request)
    except EOFError:
        return None


async def _elicit(request: PendingRequest) -> PendingRequest | None:
    content: dict[str, Any] | None = None
    while True:
        choice = (await read_line("[a]ccept, [d]ecline, [c]ancel or [l]ater? ")).lower()
        match CHOICES.get(choice[:1]):
            case "accept":
                try:
                    if request.kind == "elicitation_form":
                        content = await _fill(request.request.get("requestedSchema") or {}, content or {})
                    return await request.accept(content)
                except InvalidArgument as error:
                    note(error.to_json()["message"])
            case "decline":
                return await request.decline()
            case "cancel":
                return await request.cancel()
            case "later":
                return None
            case _:
                note("type a, d, c or l")


async def _fill(schema: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The content of a form; what was typed `before` is offered as the default."""
    content: dict[str, Any] = {}
    for field in fields(schema):
        default = before.get(field.name, field.default)
        value = await _value(field, default)
        if value is not None:
            content[field.name] = value
    return content


async def _value(field: Field, default: Any) -> Any:
    if field.description:
        note(f"  {field.description}")
    for number, (_, title) in enumerate(field.choices, 1):
        note(f"  {number}) {title}")
    hints = [field.kind] if field.kind in ("integer", "number") else []
    hints += ["y/n"] if field.kind == "boolean" else ["numbers, with commas"] if field.kind == "choices" else []
    hints += [] if field.required else ["optional"]
    hint = f" ({', '.join(hints)})" if hints else ""
    shown = f" [{default if isinstance(default, str) else json.dumps(default)}]" if default is not None else ""
    while True:
        text = await read_line(f"{field.title}{hint}{shown}: ")
        if not text and (default is not None or not field.required):
            return default
        try:
            return parse(field, text) if text or field.kind == "string" else None
        except ValueError as error:
            note(f"  {error}")


async def _sample(request: PendingRequest) -> PendingRequest | None:
    if prompt := request.request.get("systemPrompt"):
        note(f"  system prompt: {prompt}")
    text = await read_line("reply with a text, !MESSAGE to refuse, nothing for later: ")
    if not text:
        return None
    return await request.reject(text[1:]) if text.startswith("!") else await request.reply_text(text)


async def _roots(request: PendingRequest) -> PendingRequest | None:
    text = await read_line("file:// addresses with spaces between, !MESSAGE to refuse, nothing for later: ")
    if not text:
        return None
    if text.startswith("!"):
        return await request.reject(text[1:])
    return await request.reply({"roots": [{"uri": uri} for uri in text.split()]})
