"""`hubbub mcp`."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.host_entry.endpoint import make_bridge_options
from hubbub_cli.host_entry.login import log_host_in
from hubbub_cli.host_entry.sessions import list_sessions, print_hosts
from hubbub_cli.output.printer import note, print_json
from hubbub_cli.run import streams
from hubbub_cli.run.session import Usage, get_settings, run_in_loop, run_with_hub
from hubbub_cli.syntax.group import Commands
from hubbub_local.hosts.kinds import HOSTS, HostProgram
from hubbub_local.hosts.permits import find_settings_file
from hubbub_local.platform_dirs import Machine

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

app = Commands("MCP over standard input and output, for hosts that start an MCP server; and what hosts need for it.")

STARTED_BY_HAND = (
    "hubbub mcp: hosts start this, and speak JSON-RPC with it, a message a line; "
    "`hubbub mcp install HOST` configures one, `hubbub mcp check` tries it"
)

Profile = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="What the host sees: this profile; else `default`.")
]


Server = Annotated[
    str | None,
    typer.Option("--server", metavar="NAME", help="What the host sees: this server alone, with its own names."),
]


@app.callback(invoke_without_command=True)
def bridge(
    context: typer.Context,
    profile: Profile = None,
    server: Server = None,
    start: Annotated[bool, typer.Option("--start", help="Start a hub when there is none; it goes on.")] = False,
) -> None:
    """Serve the hub's servers to an MCP host over standard input and output, until it closes them.

    It needs no running hub to start: it answers what it knows, and connects when there is one.
    """
    if context.invoked_subcommand is not None:
        return
    _check_one_endpoint(profile, server)
    settings = get_settings(context)
    if start and (settings.address or os.environ.get("HUBBUB_ADDRESS")):
        raise Usage("--start starts a hub for the data directory; with an address, start the hub there")
    if sys.stdin.isatty():
        note(STARTED_BY_HAND)

    import uvloop

    from hubbub_bridge.bridge import serve

    endpoint = make_bridge_options(settings, profile, server, start=start)
    uvloop.run(serve(endpoint, stdout=streams.take_over_stdout()))


@app.command("install", example="mcp install claude-code")
def install(
    context: typer.Context,
    host: Annotated[str, typer.Argument(metavar="HOST", help=f"One of {', '.join(HOSTS)}.")],
    profile: Profile = None,
    server: Server = None,
    http: Annotated[
        bool, typer.Option("--http", help="The hub's URL instead of the bridge, with a token made for this host.")
    ] = False,
    login: Annotated[
        bool, typer.Option("--login", help="The hub's URL alone: the host logs in there, and a person says yes.")
    ] = False,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="With --http or --login: where hosts reach the hub; else as the hub says."),
    ] = None,
    only_print: Annotated[
        bool, typer.Option("--print", help="Change nothing: print the file, what belongs into it, and links.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Switch off what the host has directly of the hub's servers; a copy is kept."),
    ] = False,
    permits: Annotated[
        bool,
        typer.Option("--permits", help="With claude-code: have it ask people through the hub before it uses a tool."),
    ] = False,
) -> None:
    """Put the hub into the settings of an MCP host; all else in them stays, and a copy of the file is kept.

    The bridge finds the hub's token as this command does. Over HTTP the entry gets one of its own, with the role
    `caller` for what the host is to see; a second run keeps it. It says which servers of the hub the host has directly.
    """
    from hubbub_cli.host_entry import install
    from hubbub_cli.host_entry.entry_request import EntryRequest

    _check_one_endpoint(profile, server)
    if host not in HOSTS:
        raise Usage(f"HOST: {host!r} is not one of {', '.join(HOSTS)}")
    _check_http_options(HOSTS[host], http=http, login=login, url=url)
    if permits:
        _check_permits(host, server)
    if replace and only_print:
        raise Usage("--replace: --print changes nothing; leave one of them out")
    machine = Machine.here()
    request = EntryRequest(
        host=HOSTS[host],
        profile=profile,
        server=server,
        url=install.make_http_url(get_settings(context), url, profile, server, log_in=login) if http or login else None,
        given_url=url,
        log_in=login,
        file=HOSTS[host].file(machine),
        permit_file=find_settings_file(machine) if permits else None,
    )
    if only_print:
        install.print_entry(context, request)
    else:
        install.install_entry(context, request, replace=replace)


@app.command("check", example="mcp check claude-code")
def check(
    context: typer.Context,
    host: Annotated[str | None, typer.Argument(metavar="HOST", help=f"One of {', '.join(HOSTS)}.")] = None,
    profile: Profile = None,
    server: Server = None,
    limit_s: Annotated[
        float, typer.Option("--limit", metavar="S", min=1, max=600, help="With HOST: seconds for its own command.")
    ] = 60.0,
) -> None:
    """Connect as a host does, in both kinds of revisions: say what is there, what hosts would cut, and who is asked.

    With HOST, look at the hub's entry there instead, start the host's own command that lists its servers (which starts
    all of them), and show what it says of the hub. It exits 1 if the hub cannot be reached or used that way.
    """
    from hubbub_bridge import trial
    from hubbub_cli.host_entry import check as checks
    from hubbub_cli.host_entry import install

    _check_one_endpoint(profile, server)
    if host is not None:
        if profile or server:
            raise Usage("HOST: its entry says what it sees; leave --profile and --server out")
        _check_host(context, host, limit_s)
        return
    settings = get_settings(context)
    endpoint_options = ("--profile", profile) if profile else ("--server", server) if server else ()
    words = install.make_own_args(settings, "mcp", *(word for word in endpoint_options if word))

    async def check_hub(hub: "Hub") -> bool:  # connected first: without a hub, the trials would only wait for one
        """Print what came of connecting as a host does, and who is asked; return False if a trial failed."""
        from hubbub_bridge.uplink import fetch_question_routes

        question_routes = await fetch_question_routes(make_bridge_options(settings, profile, server))
        tried = await trial.try_revisions((install.find_own_command(), *words), os.environ | settings.environment)
        for each in tried:
            if settings.json:
                print_json({**each.to_json(), "questions": question_routes})
            else:
                checks.print_trial(each)
        if not settings.json:
            checks.print_permits(tried[0], Machine.here())
            checks.print_questions(question_routes)
            await print_hosts(hub)
        return not any(each.failure for each in tried)

    run_with_hub(context, check_hub)


app.command("login", example="mcp login")(log_host_in)
app.command("sessions", example="mcp sessions")(list_sessions)


def _check_one_endpoint(profile: str | None, server: str | None) -> None:
    """Raise Usage if both a profile and a server are named."""
    if profile and server:
        raise Usage("--profile and --server are two ways to say what the host sees: name one")


def _check_http_options(host: HostProgram, *, http: bool, login: bool, url: str | None) -> None:
    """Raise Usage if --http, --login and --url contradict each other, or the host's file cannot have a URL."""
    if http and login:
        raise Usage("--http makes a token for the entry, --login has the host log in: name one")
    if (http or login) and host.http is None:
        raise Usage(f"--{'http' if http else 'login'}: the file of {host.title} has no addresses; leave it out")
    if url and not (http or login):
        raise Usage("--url: only with --http or --login")


def _check_permits(host: str, server: str | None) -> None:
    """Raise Usage where the host cannot ask people for permission through the hub."""
    if host != "claude-code":
        raise Usage("--permits: only claude-code has hooks that ask for permission; leave it out")
    if server:
        raise Usage("--permits: a server's own endpoint has no tools of the hub; name a profile")


def _check_host(context: typer.Context, host: str, limit_s: float) -> None:
    """Check the entry of the hub at a host, and print the findings. Raises Exit(1) if something is wrong, and Usage."""
    from hubbub_cli.host_entry.check import print_host
    from hubbub_cli.host_entry.host_check import check_host

    if host not in HOSTS:
        raise Usage(f"HOST: {host!r} is not one of {', '.join(HOSTS)}")
    settings = get_settings(context)
    findings = run_in_loop(context, check_host(settings, HOSTS[host], limit_s))
    if settings.json:
        print_json(findings.to_json())
    else:
        print_host(findings)
    if findings.faults:
        raise typer.Exit(1)
