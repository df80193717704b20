"""`hubbub mcp login`."""

from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from hubbub_cli.output.printer import note, print_json, say
from hubbub_cli.run.session import Settings, Usage, hub_command

if TYPE_CHECKING:
    from hubbub_client.hub import Hub


@hub_command()
async def log_host_in(
    hub: "Hub",
    settings: Settings,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="What the host sees: this profile; else `default`.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="NAME", help="What the host sees: this server alone, with its own names."),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Whether to open the page with the code in a browser.")] = True,
) -> None:
    """Print the address to give to a host that logs in, and a code that tells the hub's page who you are.

    The host sends your browser to the hub. There you type the code, or you open its link in the same browser before;
    then you see what the host asks for, and decide. A code is good once, for ten minutes.
    """
    from hubbub_cli.terminal.browser import open_page
    from hubbub_frontend.display.records import local_time

    if profile and server:
        raise Usage("--profile and --server are two ways to say what the host sees: name one")
    code = await hub.hosts.create_login_code()
    endpoint_path = f"/p/{quote(profile, safe='')}" if profile else f"/s/{quote(server, safe='')}" if server else ""
    if settings.json:
        print_json({**code.to_json(), "endpoint": f"{code.endpoint}{endpoint_path}"})
        return
    say(f"1. Give the host this address:  {code.endpoint}{endpoint_path}")
    say("2. Let the host log in: it opens the hub's page in your browser.")
    say(f"3. Type this code there:        {code.code}   (once, until {local_time(code.expires_at)})")
    say(f"   or open it in that browser:  {code.link}")
    note("tell the code to nobody: who has it acts in your name; `hubbub tokens list` shows who was let in")
    if browser:
        await open_page(code.link)
