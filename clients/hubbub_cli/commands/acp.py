"""`hubbub acp`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hubbub_cli.output.printer import note
from hubbub_cli.run import streams
from hubbub_cli.run.session import Usage, get_settings

STARTED_BY_HAND = (
    "hubbub acp: a hub starts this as a server, and speaks MCP with it; `hubbub servers add NAME -- hubbub acp -- "
    "COMMAND` adds an agent to the hub"
)


def acp(
    context: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="What starts the agent, after `--`.")],
    mcp: Annotated[
        str | None,
        typer.Option("--mcp", metavar="PROFILE", help="Give the agent the hub's tools that this profile shows."),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option(
            "--fs", metavar="ROOT", help="Offer the agent files and terminals below this folder; sessions are there."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="What people call the agent.")] = None,
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="ID", help="Set each session to this mode of the agent.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="ID", help="Set each session to this model of the agent.")
    ] = None,
    login: Annotated[
        str | None, typer.Option("--login", metavar="ID", help="Have the agent log in by this method of its own.")
    ] = None,
) -> None:
    """Serve a coding agent that speaks ACP as an MCP server over standard input and output.

    Its sessions are tools and resources of the server, and what it wants to do is asked as a form.
    """
    if sys.stdin.isatty():
        note(STARTED_BY_HAND)
    settings = get_settings(context)

    import uvloop

    from hubbub_acp.options import AcpOptions
    from hubbub_acp.program import serve
    from hubbub_cli.host_entry.install import find_own_command, make_own_args
    from hubbub_local.platform_dirs import find_data_dir
    from hubbub_shared import __version__

    tools = (find_own_command(), *make_own_args(settings, "mcp", "--profile", mcp)) if mcp else ()
    options = AcpOptions(
        command=tuple(command),
        name=name or Path(command[0]).name,
        version=__version__,
        root=_resolve_root_folder(root),
        tools_command=tools,
        login=login,
        mode=mode,
        model=model,
        records=find_data_dir(settings.data_dir) / "acp",
    )
    uvloop.run(serve(options, stdout=streams.take_over_stdout()))


def _resolve_root_folder(root_option: str | None) -> Path | None:
    """Return the whole path of the folder that --fs names; None without it. Raises Usage."""
    if root_option is None:
        return None
    try:
        root = Path(root_option).resolve(strict=True)
    except OSError as exc:
        raise Usage(f"--fs: {root_option!r}: {exc.strerror}") from None
    if not root.is_dir():
        raise Usage(f"--fs: {root_option!r} is no folder")
    return root
