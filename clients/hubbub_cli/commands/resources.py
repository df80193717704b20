"""`hubbub read`, `prompt`, `complete`, `subscribe`, `roots` and `log-level`."""

import contextlib
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from hubbub_cli.output.printer import note, print_json, say
from hubbub_cli.run.session import Usage, json_object, json_value, run, settings_of
from hubbub_cli.syntax import completion
from hubbub_cli.syntax.params import Server, Timeout
from hubbub_cli.terminal import arguments
from hubbub_client.data.records import LogLevel
from hubbub_client.payload import as_objects
from hubbub_frontend.display.content import describe_result
from hubbub_frontend.display.records import describe_fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hubbub_client.hub import Hub
    from hubbub_client.services.servers import Roots

    Params = Callable[[Hub], Awaitable[dict[str, Any]]]

LEVELS: tuple[str, ...] = get_args(LogLevel)
Uri = Annotated[str, typer.Argument(metavar="URI", help="The resource.", autocompletion=completion.resources)]


def read(context: typer.Context, server: Server, uri: Uri, timeout: Timeout = None) -> None:
    """Read a resource: its text, and other content described."""
    _ask(context, server, "resources/read", _same({"uri": uri}), timeout)


def prompt(
    context: typer.Context,
    server: Server,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The prompt.", autocompletion=completion.prompts)],
    words: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE... or JSON", help=arguments.HELP)] = None,
    timeout: Timeout = None,
) -> None:
    """Get a prompt with its arguments filled in; at a terminal, those it needs are asked for."""
    arguments.given(words)  # wrong JSON is said before a hub is looked for
    settings = settings_of(context)

    async def params(hub: "Hub") -> dict[str, Any]:
        found = await arguments.resolve(hub, settings, "prompt", server, name, words, form=False)
        return {"name": name, "arguments": found}

    _ask(context, server, "prompts/get", params, timeout)


def complete(
    context: typer.Context,
    server: Server,
    argument: Annotated[str, typer.Argument(metavar="ARGUMENT", help="The argument's name.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="What is typed so far.")] = "",
    prompt: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The argument is one of this prompt.", autocompletion=completion.prompts),
    ] = None,
    template: Annotated[
        str | None, typer.Option(metavar="URI", help="The argument is one of this resource template.")
    ] = None,
    known: Annotated[str | None, typer.Option("--context", metavar="JSON", help="The arguments known already.")] = None,
) -> None:
    """List what a server suggests for an argument of a prompt or of a resource template."""
    if (prompt is None) == (template is None):
        raise Usage("give either --prompt NAME or --template URI")
    ref = {"type": "ref/resource", "uri": template} if prompt is None else {"type": "ref/prompt", "name": prompt}
    params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
    if given := json_object(known, "--context"):
        params["context"] = {"arguments": given}
    _ask(context, server, "completion/complete", _same(params), None)


def _same(params: dict[str, Any]) -> "Params":
    async def same(_: "Hub") -> dict[str, Any]:
        return params

    return same


def _ask(context: typer.Context, server: str, method: str, params: "Params", timeout_s: float | None) -> None:
    settings = settings_of(context)

    async def work(hub: "Hub") -> None:
        from hubbub_cli.terminal.live_call import LiveCall

        result = await LiveCall(hub, settings).run(server, method, await params(hub), timeout_s=timeout_s)
        if settings.json:
            print_json(result)
        elif said := describe_result(method, result):
            say(said)
        else:
            note("the server returned nothing to show")

    run(context, work)


def subscribe(context: typer.Context, server: Server, uri: Uri) -> None:
    """Read a resource, and again after each change that the server tells of, until interrupted."""
    settings = settings_of(context)

    async def work(hub: "Hub") -> None:
        async with contextlib.aclosing(hub.subscribe(server, uri)) as updates:
            async for update in updates:
                if settings.json:
                    print_json(update.to_json())
                elif update.error is not None:
                    note(f"{update.at.astimezone():%H:%M:%S}  {describe_fault(update.error)}")
                else:
                    text = describe_result("resources/read", update.result)
                    say(f"{update.at.astimezone():%H:%M:%S}  {text}")

    run(context, work, endless=True)


def log_level(
    context: typer.Context,
    server: Server,
    level: Annotated[
        str, typer.Argument(metavar="LEVEL", help=f"{', '.join(LEVELS)}.", autocompletion=completion.among(LEVELS))
    ],
) -> None:
    """Set the level of the log messages that a server sends (to revision 2025-11-25)."""
    if level not in LEVELS:
        raise Usage(f"LEVEL: {level!r} is not one of {', '.join(LEVELS)}")

    async def work(hub: "Hub") -> None:
        await hub.set_log_level(server, cast("LogLevel", level))
        if settings_of(context).json:
            print_json({"server": server, "level": level})
        else:
            note(f"{server} sends log messages from {level} on")

    run(context, work)


def roots(
    context: typer.Context,
    server: Server,
    what: Annotated[
        str,
        typer.Argument(
            metavar="list/set", help="Show them, or set them.", autocompletion=completion.among(("list", "set"))
        ),
    ] = "list",
    value: Annotated[
        str | None, typer.Argument(metavar="JSON", help="An array of roots, `ask`, or `configured` to go back.")
    ] = None,
) -> None:
    """Show the roots that a server gets when it asks for them, or set them; it is told when they change."""
    if (what, value is None) not in (("list", True), ("set", False)):
        raise Usage("give `list`, or `set` with the roots")
    new = _roots(value)

    async def work(hub: "Hub") -> None:
        found = await (hub.servers.roots(server) if what == "list" else hub.servers.set_roots(server, new))
        if settings_of(context).json:
            print_json(found)
        elif isinstance(found, str):
            say("ask")
        elif not found:
            note(f"{server} is told of no directories")
        else:
            for root in as_objects(found):
                say("  ".join(str(root[key]) for key in ("uri", "name") if key in root))

    run(context, work)


def _roots(text: str | None) -> "Roots | None":
    if text is None or text == "configured":
        return None
    if text == "ask":
        return "ask"
    value: object = json_value(text, "JSON")
    if not isinstance(value, list):
        raise Usage("JSON must be an array of roots")
    return cast("list[dict[str, Any]]", value)
