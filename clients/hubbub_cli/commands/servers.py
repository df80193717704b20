"""`hubbub servers`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hubbub_cli.output.details import print_record
from hubbub_cli.output.printer import note, print_json, print_records
from hubbub_cli.output.watch_lines import Lines, print_steps
from hubbub_cli.run.session import Settings, Usage, get_settings, parse_json, run_with_hub
from hubbub_cli.syntax import completion
from hubbub_cli.syntax.bounds import check_seconds
from hubbub_cli.syntax.group import Commands
from hubbub_cli.syntax.params import Resume, ServerName
from hubbub_client.data.records import Server, Transport

if TYPE_CHECKING:
    from hubbub_client.data.specs import ServerSpec
    from hubbub_client.hub import Hub

app = Commands("The configured MCP servers and their connections.")

NewName = Annotated[str, typer.Argument(metavar="NAME", help="Its new, unique name.")]
CommandLine = Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND ARGS...", help="A stdio server.")]
Url = Annotated[str | None, typer.Option(metavar="URL", help="A server over HTTP.")]
TransportOption = Annotated[Transport | None, typer.Option(help="The transport, if not streamable HTTP.")]
Headers = Annotated[list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="HTTP header; repeatable.")]
Env = Annotated[
    list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Variable for the process; repeatable.")
]
Cwd = Annotated[str | None, typer.Option(metavar="DIR", help="Working directory of the process.")]
# Options of a server with a command-line option of their own are not settable by `--set`.
KEYS_WITH_OPTIONS = ("name", "command", "args", "env", "cwd", "url", "transport", "headers")


def _list_settable_options(incomplete: str = "") -> list[str]:
    """Return the options that `--set` can set and that begin with a word, each as `NAME=`."""
    from hubbub_client.data.specs import KEYS

    return [f"{key}=" for key in KEYS if key not in KEYS_WITH_OPTIONS and key.startswith(incomplete)]


def _list_agents(incomplete: str = "") -> list[str]:
    """Return the names of coding agents that begin with a word, for a shell that completes the word."""
    from hubbub_cli.machine.agent_server import NAMES

    return [each for each in NAMES.split(", ") if each.startswith(incomplete)]


Agent = Annotated[
    str | None,
    typer.Option(
        metavar="AGENT",
        help="A coding agent: opencode, gemini, qwen, claude, codex, goose or copilot; acp for the one of COMMAND.",
        autocompletion=_list_agents,
    ),
]
AgentProfile = Annotated[
    str | None,
    typer.Option("--mcp", metavar="PROFILE", help="With --agent: give it the hub's own servers, as PROFILE."),
]
AgentRoot = Annotated[
    str | None,
    typer.Option("--fs", metavar="DIR", help="With --agent: let it read and write files here through the hub."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is connected, and say what is in the way.")]
WaitLimit = Annotated[
    float, typer.Option("--timeout", min=0, metavar="S", callback=check_seconds, help="With --wait: seconds at most.")
]
START_FAILURE_S = 1.0
"""Seconds in which a server that cannot be started at all has said so."""

Revision = Annotated[
    int | None, typer.Option(metavar="R", help="Only if nobody has changed it since this revision (servers get).")
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="OPTION=VALUE",
        help="A server option, such as call_timeout_s=120; repeatable.",
        autocompletion=_list_settable_options,
    ),
]


@app.hub_command("list", example="servers list --wait connected --timeout 60")
async def list_(
    hub: "Hub",
    settings: Settings,
    wait: Annotated[
        Literal["connected"] | None, typer.Option(help="First wait until every wanted server is connected.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="S", callback=check_seconds, help="Seconds to wait at most.")
    ] = 60.0,
) -> None:
    """List all servers."""
    unconnected: list[Server] = []
    if wait:
        from hubbub_cli.terminal.wait import ServerWait  # imported late: anyio takes longer than a list needs

        unconnected = await ServerWait(hub).wait_until_connected(timeout)
    print_records(Server, await hub.servers.list(), settings.json)
    if unconnected:
        raise _make_not_connected_error(unconnected, timeout)


@app.hub_command(example="servers get demo")
async def get(hub: "Hub", settings: Settings, name: ServerName) -> None:
    """Show one server."""
    print_record(await hub.servers.get(name), settings.json)


@app.command(example="servers add search --url https://mcp.example.com/mcp")
def add(
    context: typer.Context,
    name: NewName,
    command: CommandLine = None,
    url: Url = None,
    transport: TransportOption = None,
    header: Headers = None,
    env: Env = None,
    cwd: Cwd = None,
    option: Options = None,
    agent: Agent = None,
    profile: AgentProfile = None,
    root: AgentRoot = None,
    save: Annotated[
        bool, typer.Option("--save", help="Write it into the hub's configuration file, on this machine.")
    ] = False,
    wait: Wait = False,
    timeout: WaitLimit = 60.0,
) -> None:
    """Add a server: NAME --url URL, NAME -- COMMAND ARGS..., or a coding agent: NAME --agent AGENT.

    It exits 1 if the server cannot be connected as it is, and with --wait unless it is connected in time. It stays
    added.
    """
    settings = get_settings(context)
    defaults: Mapping[str, Any] = {}
    if agent or profile or root:
        from hubbub_cli.machine.agent_server import OPTIONS, AgentWish, make_command  # imported late: few are agents

        command, variables = make_command(settings, AgentWish(agent, command or (), url, profile, root))
        env, defaults = [*(f"{key}={value}" for key, value in variables.items()), *(env or [])], OPTIONS
    spec = _make_spec(name, command, url, transport, header, env, cwd, option, defaults)
    if save:
        from hubbub_cli.machine.saved_server import offer_keyring  # imported late: few servers are saved

        spec = offer_keyring(settings, spec)

    async def add_server(hub: "Hub") -> None:
        """Add the server to the hub or to its file, wait until it is connected, and print it."""
        if save:
            from hubbub_cli.machine.saved_server import save_server

            server = await save_server(hub, settings, spec)
        else:
            server = await hub.servers.add(spec)
        await _print_when_connected(hub, server, settings.json, timeout if wait else None)
        if agent:
            from hubbub_cli.machine.agent_server import print_next_steps

            print_next_steps(settings, name, agent)

    run_with_hub(context, add_server)


@app.command(example="servers update search --url https://mcp.example.com/mcp --set call_timeout_s=120")
def update(
    context: typer.Context,
    name: ServerName,
    command: CommandLine = None,
    url: Url = None,
    transport: TransportOption = None,
    header: Headers = None,
    env: Env = None,
    cwd: Cwd = None,
    option: Options = None,
    revision: Revision = None,
) -> None:
    """Replace the whole spec of a server that was added over the API, and reconnect."""
    spec = _make_spec(name, command, url, transport, header, env, cwd, option)

    async def update_server(hub: "Hub") -> None:
        """Replace the spec at the hub, and print the server."""
        print_record(await hub.servers.update(spec, revision=revision), get_settings(context).json)

    run_with_hub(context, update_server)


async def _print_when_connected(hub: "Hub", server: Server, as_json: bool, timeout_s: float | None) -> None:
    """Wait until a server is connected, and print it. Raises HubbubError afterwards if it is not within `timeout_s`.

    With `timeout_s` None, wait only for START_FAILURE_S, and raise only if the server cannot be connected as it is,
    for example because its command does not exist.
    """
    from hubbub_cli.terminal.wait import ServerWait, is_hopeless
    from hubbub_client.errors import HubbubError

    wait, unconnected = ServerWait(hub, [server.name]), list[Server]()
    try:
        unconnected = await wait.wait_until_connected(START_FAILURE_S if timeout_s is None else timeout_s)
    except HubbubError:  # a caller may add servers that it may not watch
        if timeout_s is not None:
            raise
    print_record(wait.servers.get(server.name, server), as_json)
    if unconnected and (timeout_s is not None or is_hopeless(unconnected[0])):
        raise _make_not_connected_error(unconnected, timeout_s)


def _make_not_connected_error(unconnected: list[Server], timeout_s: float | None) -> Exception:
    """Return the error for servers that are not connected: not within `timeout_s`, or not until a person mends them."""
    from hubbub_cli.terminal.wait import is_hopeless
    from hubbub_client.errors import DeadlineExceeded, FailedPrecondition

    names = ", ".join(each.name for each in unconnected)
    metadata = {"servers": ",".join(each.name for each in unconnected)}
    if all(map(is_hopeless, unconnected)):
        message = f"not connected, and not tried again before that is mended: {names}"
        return FailedPrecondition(message, reason="NOT_CONNECTED", metadata=metadata)
    return DeadlineExceeded(f"after {timeout_s:g} s not connected: {names}", reason="NOT_CONNECTED", metadata=metadata)


def _make_spec(
    name: str,
    command: list[str] | None,
    url: str | None,
    transport: Transport | None,
    header: list[str] | None,
    env: list[str] | None,
    cwd: str | None,
    option: list[str] | None,
    defaults: Mapping[str, Any] | None = None,
) -> "ServerSpec":
    """Return the spec that the options of a command describe, with `defaults` for those left out. Raises Usage."""
    from hubbub_client.data.specs import ServerSpec, to_message  # imported late, since it imports gRPC

    if bool(command) == bool(url):
        raise Usage("give either --url URL or -- COMMAND ARGS...")
    spec = ServerSpec(
        name=name,
        command=command[0] if command else None,
        args=command[1:] if command else None,
        url=url or None,
        cwd=cwd or None,
        transport=transport,
        headers=dict(_split_pair(each) for each in header or []) or None,
        env=dict(_split_pair(each) for each in env or []) or None,
        **{**(defaults or {}), **_parse_options(option or [])},
    )
    try:
        to_message(spec)
    except ValueError as error:
        raise Usage(str(error)) from None
    return spec


def _split_pair(text: str) -> tuple[str, str]:
    """Return the name and the value of a text NAME=VALUE. Raises Usage."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise Usage(f"{text!r} is not NAME=VALUE")
    return name, value


def _parse_options(pairs: list[str]) -> dict[str, Any]:
    """Return the values of server options that were typed as NAME=VALUE, by name. Raises Usage.

    A value is read as JSON, unless the option is a text, or the value is the one word that the option takes.
    """
    from hubbub_client.data.specs import TEXT_KEYS, WORDS

    values: dict[str, Any] = {}
    for name, value in map(_split_pair, pairs):
        if f"{name}=" not in _list_settable_options():
            raise Usage(f"--set: a server has no option {name!r}")
        plain = name in TEXT_KEYS or WORDS.get(name) == value
        values[name] = value if plain else parse_json(value, f"--set {name}: {value!r}")
    return values


@app.hub_command(example="servers remove search")
async def remove(hub: "Hub", settings: Settings, name: ServerName) -> None:
    """Disconnect and forget a server that was added over the API."""
    await hub.servers.remove(name)
    if settings.json:
        print_json({"name": name, "removed": True})
    else:
        note(f"{name} is removed")


@app.hub_command(example="servers connect demo")
async def connect(
    hub: "Hub", settings: Settings, name: ServerName, wait: Wait = False, timeout: WaitLimit = 60.0
) -> None:
    """Keep a server connected, also after a restart of the hub; with --wait, exit 1 unless it is connected in time."""
    server = await hub.servers.connect(name)
    if wait:
        await _print_when_connected(hub, server, settings.json, timeout)
    else:
        print_record(server, settings.json)


@app.hub_command(example="servers disconnect demo")
async def disconnect(hub: "Hub", settings: Settings, name: ServerName) -> None:
    """Disconnect a server; its calls fail and its tasks end."""
    print_record(await hub.servers.disconnect(name), settings.json)


@app.hub_command("logout", example="servers logout tickets")
async def log_out(hub: "Hub", settings: Settings, name: ServerName) -> None:
    """Forget the OAuth tokens and the client of a server, and connect it again: a person is asked to log in."""
    print_record(await hub.servers.log_out(name), settings.json)


@app.hub_command(example="servers watch demo", endless=True)
async def watch(
    hub: "Hub",
    settings: Settings,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Only these servers.", autocompletion=completion.servers),
    ] = None,
    resume: Resume = None,
) -> None:
    """Watch servers and their changes, until interrupted."""
    empty = f"there is no server {' or '.join(names)} yet" if names else "no server is configured yet"
    lines = Lines(empty, as_json=settings.json)
    await print_steps(hub.servers.watch(names or (), resume_token=resume), lines)
