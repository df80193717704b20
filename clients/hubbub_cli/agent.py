"""`hubbub agent`."""

import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubbub_cli.output import note
from hubbub_cli.session import Usage, run
from hubbub_cli.signals import until_signal

if TYPE_CHECKING:
    from hubbub_agent.rules import Rulebook
    from hubbub_client.hub import Hub

ONE = "give --rules FILE, or one of --accept, --decline, --exec COMMAND, --chat URL (with --model)"


def agent(
    context: typer.Context,
    rules: Annotated[str | None, typer.Option(metavar="FILE", help="Its rules (TOML).")] = None,
    server: Annotated[str, typer.Option(metavar="PATTERN", help="Without FILE: only of these servers.")] = "*",
    kind: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="Without FILE: only this kind; repeatable.")
    ] = None,
    accept: Annotated[bool, typer.Option("--accept", help="Without FILE: accept forms with their defaults.")] = False,
    decline: Annotated[bool, typer.Option("--decline", help="Without FILE: decline elicitations.")] = False,
    command: Annotated[
        str | None,
        typer.Option("--exec", metavar="COMMAND", help="Without FILE: answer by a program, without a shell."),
    ] = None,
    chat: Annotated[
        str | None, typer.Option(metavar="URL", help="Without FILE: answer samplings by an OpenAI-compatible endpoint.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="With --chat: the model.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="With --chat: the variable that has the key.")
    ] = None,
    capacity: Annotated[
        int | None, typer.Option(min=1, max=100, metavar="N", help="How many pending requests at once.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would do; claim and answer nothing.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End when all that is open now is handled.")] = False,
    audit: Annotated[
        str | None, typer.Option(metavar="FILE", help="File for the audit in JSON lines; else stderr.")
    ] = None,
) -> None:
    """Answer what the rules allow, as one of the hub's workers, until interrupted; leave the rest to people."""
    given: dict[str, Any] = {
        "accept": accept or None,
        "decline": decline or None,
        "command": shlex.split(command) if command is not None else None,
        "chat": "chat" if chat is not None else None,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) + (rules is not None) != 1 or (rules is not None and (server != "*" or kind or model)):
        raise Usage(ONE)
    endpoint = {"base_url": chat, "model": model, "api_key_env": api_key_env}
    document: dict[str, Any] = {"rule": [{"server": server, "kind": kind or [], **chosen}]}
    if chat is not None:
        document["chat"] = {"chat": {name: value for name, value in endpoint.items() if value is not None}}
    book = _rulebook(rules, document, capacity)

    async def work(hub: "Hub") -> None:
        from hubbub_agent.audit import Audit
        from hubbub_agent.run import Agent

        with ExitStack() as stack:
            try:
                notes = stack.enter_context(Audit.to(Path(audit))) if audit else Audit(sys.stderr)
            except OSError as error:
                raise Usage(f"--audit: {error}") from None
            async with Agent.open(hub, book, notes, note) as it:
                with until_signal() as stop:
                    await it.run(stop, dry_run=dry_run, once=once)

    run(context, work, endless=True)


def _rulebook(file: str | None, document: dict[str, Any], capacity: int | None) -> "Rulebook":
    from hubbub_agent.rules import ConfigProblem, load, rulebook

    try:
        found = load(Path(file)) if file is not None else rulebook(document)
    except ConfigProblem as problem:
        raise Usage(str(problem)) from None
    return found if capacity is None else found.model_copy(update={"capacity": capacity})
