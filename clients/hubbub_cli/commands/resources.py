"""`hubbub read`, `prompt`, `complete`, `subscribe`, `roots` and `log-level`."""

import contextlib
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import typer

from hubbub_cli.output.printer import note, print_json, say
from hubbub_cli.run.session import (
    Settings,
    Usage,
    get_settings,
    hub_command,
    parse_json,
    parse_json_object,
    run_with_hub,
)
from hubbub_cli.syntax import completion
from hubbub_cli.syntax.params import Server, Timeout
from hubbub_cli.terminal import arguments
from hubbub_client.data.literals import LogLevel
from hubbub_client.payload import as_objects
from hubbub_frontend.display.content import describe_result
from hubbub_frontend.display.records import describe_fault

if TYPE_CHECKING:
    from hubbub_client.hub import Hub
    from hubbub_client.services.servers import Roots

ResourceUri = Annotated[str, typer.Argument(metavar="URI", help="The resource.", autocompletion=completion.resources)]


@hub_command()
async def read(hub: "Hub", settings: Settings, server: Server, uri: ResourceUri, timeout: Timeout = None) -> None:
    """Read a resource: its text, and other content described."""
    await _send_and_print(hub, settings, server, "resources/read", {"uri": uri}, timeout)


def prompt(
    context: typer.Context,
    server: Server,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The prompt.", autocompletion=completion.prompts)],
    words: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE... or JSON", help=arguments.HELP)] = None,
    timeout: Timeout = None,
) -> None:
    """Get a prompt with its arguments filled in; at a terminal, those it needs are asked for."""
    arguments.parse_without_schema(words)  # wrong JSON is said before a hub is looked for
    settings = get_settings(context)

    async def get_prompt(hub: "Hub") -> None:
        """Find the arguments, get the prompt and print it."""
        resolved = await arguments.resolve_arguments(hub, settings, "prompt", server, name, words, form=False)
        params = {"name": name, "arguments": resolved}
        await _send_and_print(hub, settings, server, "prompts/get", params, timeout)

    run_with_hub(context, get_prompt)


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
    if known_arguments := parse_json_object(known, "--context"):
        params["context"] = {"arguments": known_arguments}
    settings = get_settings(context)
    run_with_hub(context, lambda hub: _send_and_print(hub, settings, server, "completion/complete", params))


async def _send_and_print(
    hub: "Hub", settings: Settings, server: str, method: str, params: dict[str, Any], timeout_s: float | None = None
) -> None:
    """Send a request, wait for its result with progress and questions shown, and print it: as JSON, or in words."""
    from hubbub_cli.terminal.live_call import LiveCall

    result = await LiveCall(hub, settings).run(server, method, params, timeout_s=timeout_s)
    if settings.json:
        print_json(result)
    elif text := describe_result(method, result):
        say(text)
    else:
        note("the server returned nothing to show")


@hub_command(endless=True)
async def subscribe(hub: "Hub", settings: Settings, server: Server, uri: ResourceUri) -> None:
    """Read a resource, and again after each change that the server tells of, until interrupted."""
    async with contextlib.aclosing(hub.subscribe(server, uri)) as updates:
        async for update in updates:
            if settings.json:
                print_json(update.to_json())
            elif update.error is not None:
                note(f"{update.at.astimezone():%H:%M:%S}  {describe_fault(update.error)}")
            else:
                text = describe_result("resources/read", update.result)
                say(f"{update.at.astimezone():%H:%M:%S}  {text}")


@hub_command()
async def log_level(
    hub: "Hub",
    settings: Settings,
    server: Server,
    level: Annotated[LogLevel, typer.Argument(metavar="LEVEL", help=f"{', '.join(get_args(LogLevel))}.")],
) -> None:
    """Set the level of the log messages that a server sends (to revision 2025-11-25)."""
    await hub.set_log_level(server, level)
    if settings.json:
        print_json({"server": server, "level": level})
    else:
        note(f"{server} sends log messages from {level} on")


def roots(
    context: typer.Context,
    server: Server,
    action: Annotated[
        Literal["list", "set"], typer.Argument(metavar="list/set", help="Show them, or set them.")
    ] = "list",
    value: Annotated[
        str | None, typer.Argument(metavar="JSON", help="An array of roots, `ask`, or `configured` to go back.")
    ] = None,
) -> None:
    """Show the roots that a server gets when it asks for them, or set them; it is notified when they change."""
    if (action == "list") != (value is None):
        raise Usage("give `list`, or `set` with the roots")
    new = _parse_roots(value)

    async def print_roots(hub: "Hub") -> None:
        """Set the roots if there are new ones, and print those that the server gets."""
        roots_list = await (hub.servers.roots(server) if action == "list" else hub.servers.set_roots(server, new))
        if get_settings(context).json:
            print_json(roots_list)
        elif isinstance(roots_list, str):
            say("ask")
        elif not roots_list:
            note(f"{server} gets no directories")
        else:
            for root in as_objects(roots_list):
                say("  ".join(str(root[key]) for key in ("uri", "name") if key in root))

    run_with_hub(context, print_roots)


def _parse_roots(text: str | None) -> "Roots | None":
    """Return the roots that a server is to get; None for those that are configured. Raises Usage."""
    if text is None or text == "configured":
        return None
    if text == "ask":
        return "ask"
    value: object = parse_json(text, "JSON")
    if not isinstance(value, list):
        raise Usage("JSON must be an array of roots")
    return cast("list[dict[str, Any]]", value)
