"""`hubbub tokens` and `whoami`."""

from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from hubbub_cli.output.details import print_record
from hubbub_cli.output.printer import note, print_json, print_records, say
from hubbub_cli.run.session import Settings, get_settings, hub_command, run_with_hub
from hubbub_cli.syntax import completion
from hubbub_cli.syntax.group import Commands
from hubbub_cli.syntax.params import make_repeatable_choice
from hubbub_cli.syntax.span import parse_span
from hubbub_client.data.literals import Role

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

app = Commands("Who may use the hub: tokens for people and programs.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The token.", autocompletion=completion.tokens)]


@app.command(example="tokens create reports --role viewer --expires 30d")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that answers, claims and calls with it.")],
    role: Annotated[
        list[Any], make_repeatable_choice("--role", Role, f"{', '.join(get_args(Role))}; repeatable.", metavar="ROLE")
    ],
    server: Annotated[
        list[str] | None,
        typer.Option(
            "--server",
            metavar="PATTERN",
            help="Only for servers with such a name, as `git*`; repeatable.",
            autocompletion=completion.servers,
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="How long it is good, as 30d, 12h, 45m or 90s; else for ever."),
    ] = None,
    may_name_others: Annotated[
        bool,
        typer.Option("--may-name-others", help="It may speak for anybody with --as, for a frontend of several people."),
    ] = False,
    hold: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="How long an MCP host's request is held while people are asked, as 4s; less than the host waits.",
        ),
    ] = None,
) -> None:
    """Make a token, and print it, only this once."""
    from hubbub_client.services.tokens import Grant

    grants = [Grant(role=each, servers=tuple(server or ("*",))) for each in role]
    ttl_s = parse_span("--expires", expires) if expires is not None else None
    hold_s = parse_span("--hold", hold) if hold is not None else None

    async def create_token(hub: "Hub") -> None:
        """Make the token at the hub, and print its secret."""
        token = await hub.tokens.create(name, grants, ttl_s=ttl_s, may_name_others=may_name_others, hold_s=hold_s)
        if get_settings(context).json:
            print_json(token.to_json())
        else:
            say(token.secret)
            note("save it now, since the hub keeps only a digest; use it with --token or HUBBUB_TOKEN")

    run_with_hub(context, create_token)


@app.hub_command("list", example="tokens list")
async def list_(hub: "Hub", settings: Settings) -> None:
    """List the tokens, without their secrets."""
    from hubbub_client.services.tokens import Token

    print_records(Token, await hub.tokens.list(), settings.json)


@app.hub_command(example="tokens revoke reports")
async def revoke(hub: "Hub", settings: Settings, name: Name) -> None:
    """Revoke a token; what is open with it ends."""
    print_record(await hub.tokens.revoke(name), settings.json)


@hub_command()
async def whoami(hub: "Hub", settings: Settings) -> None:
    """Show who you are to the hub, and what you may do."""
    from hubbub_client.services.tokens import Caller

    print_records(Caller, [await hub.admin.whoami()], settings.json)
