"""`hubbub init`: the servers that a person already has, taken over into the hub's configuration."""

from pathlib import Path
from typing import Annotated

import typer

from hubbub_cli.output.printer import note
from hubbub_cli.run.session import get_settings


def init(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Take all that are new, and ask nothing.")] = False,
    confirm: Annotated[
        bool | None,
        typer.Option(
            "--confirm/--no-confirm",
            help="Whether people approve calls of tools that are not marked read-only; it asks, and with --yes not.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Find the MCP servers that you have in other programs, and take those you choose into the hub's configuration.

    It reads the files of Claude Desktop, Claude Code, VS Code, Cursor, Codex, Goose, Gemini CLI, Qwen Code, opencode,
    Copilot CLI, Windsurf, Zed, and of this folder, and changes none of them.
    """
    from hubbub_cli.commands.config import choose_config_file, print_when_effective
    from hubbub_cli.machine import server_import  # imported late: the help needs none of it
    from hubbub_local.hosts.kinds import HOSTS
    from hubbub_local.hosts.offers import find_all_servers
    from hubbub_local.platform_dirs import Machine

    settings = get_settings(context)
    request = server_import.ImportRequest(
        settings=settings, file=choose_config_file(None), everything=yes, confirm=confirm
    )
    found = find_all_servers(Machine.here(), Path.cwd())
    outcome = server_import.import_servers(request, found)
    if not found and not settings.json:
        note("no servers were found. Add one: hubbub servers add NAME -- COMMAND ARGS..., or hubbub config edit")
    elif outcome is None:
        if not settings.json:
            note(f"nothing to do; the configuration is {request.file}")
    else:
        server_import.print_outcome(request, outcome)
        if outcome.imported and not settings.json:
            note("nothing was changed in the files of the hosts")
            print_when_effective(settings, request.file)
            hosts = dict.fromkeys(offer.server.found.place.host for offer in outcome.imported)
            for host in (host for host in hosts if host in HOSTS):
                note(f"to use them there through the hub: hubbub mcp install {host}")
