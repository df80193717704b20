"""`hubbub up` and `hubbub down`."""

import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubbub_cli.output.printer import note, print_json, say
from hubbub_cli.run.session import UP_AT_FREE_ADDRESS, Settings, get_settings

if TYPE_CHECKING:
    from asyncio.subprocess import Process

Ready = Mapping[str, Any]

CANNOT_START_STATUS = 1
"""What a hub exits with whose address or store is taken."""


def up(
    context: typer.Context,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="In the background; return when the hub is ready.")
    ] = False,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A configuration file, TOML or JSON; repeatable. Else the default one."),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where the API is served, or unix:PATH; port 0 picks one.")
    ] = None,
) -> None:
    """Start a hub, and say how its servers are until interrupted; with -d, let it run in the background.

    If one runs already for this data directory, `-d` says so and is done.
    """
    import asyncio

    from hubbub_cli.notices.notify_process import find_notify_file, make_command_with_notify
    from hubbub_local import daemon, other_hubs

    settings = get_settings(context)
    directory = _find_own_data_dir(settings)
    running = _find_hub_pid(directory)
    files = [word for each in config or () for word in ("--config", str(Path(each).absolute()))]
    beside_command = settings.command(*UP_AT_FREE_ADDRESS, *files)
    try:
        if detach and running is not None:
            asyncio.run(_print_running(settings, directory, running))
            return
        if detach:
            notifies = find_notify_file(config or ()) is not None
            own_command = make_command_with_notify(settings.data_dir, config or (), listen) if notifies else None
            started = daemon.start_hub(settings.data_dir, config=config or (), listen=listen, command_line=own_command)
            asyncio.run(_print_started(settings, started.ready, started.log))
            return
        if running is not None:
            down = settings.command("down")
            raise daemon.NotStarted(f"a hub already runs for {directory}, process {running}; `{down}` ends it")
        log = daemon.find_log(settings.data_dir) if sys.stderr.isatty() else None
        words = daemon.make_command(settings.data_dir, log=log, config=config or (), listen=listen)
    except daemon.NotStarted as error:
        raise _make_failure(
            f"the hub was not started: {other_hubs.add_advice(str(error), beside_command)}", "HUB_NOT_STARTED"
        ) from None

    def print_started(ready: Ready) -> Awaitable[None]:
        """Print where the hub is, once it is ready."""
        return _print_started(settings, ready, log)

    notify = find_notify_file(config or ())
    status = asyncio.run(run_in_foreground(words, print_started, notify=notify, aloud=not settings.json))
    if status == CANNOT_START_STATUS and not settings.json:
        _print_other_hubs(directory, beside_command)
    raise typer.Exit(status)


def _print_other_hubs(directory: Path, beside_command: str) -> None:
    """Print the hubs of other data directories that run, since one of them may have the address of this one."""
    from hubbub_local import other_hubs

    running_hubs = [each for each in other_hubs.find_hubs() if each.data_dir != directory]
    for other in running_hubs:
        note(f"another Hubbub runs: process {other.pid} at {other.address}, its data in {other.data_dir}")
    if running_hubs:
        note(f"if it has the address, `{beside_command}` starts one beside it")


def down(
    context: typer.Context,
    now: Annotated[bool, typer.Option("--now", help="Give calls under way no time to end.")] = False,
) -> None:
    """End the hub of this data directory: calls under way may end first, as the hub's shutdown_grace_s says."""
    from hubbub_local import daemon

    settings = get_settings(context)
    directory = _find_own_data_dir(settings)
    pid = _find_hub_pid(directory)
    if pid is None:
        raise _make_failure(
            f"no hub runs for {directory}; `{settings.command('up', '-d')}` starts one", "HUB_UNREACHABLE"
        )
    if not settings.json:
        note(f"Ending the hub of {directory}, process {pid} ...")
    try:
        for seconds in daemon.end_hub(directory, pid, now=now):
            if not settings.json:
                note(f"  {seconds:3.0f} s  it lets calls under way end; `{settings.command('down', '--now')}` does not")
    except daemon.NotEnded as error:
        raise _make_failure(str(error), "HUB_NOT_ENDED") from None
    if settings.json:
        print_json({"event": "ended", "pid": pid, "data_dir": str(directory)})
    else:
        say(f"The hub has ended; `{settings.command('up', '-d')}` starts it again.")


async def run_in_foreground(
    command_line: Sequence[str],
    on_ready: "Callable[[Ready], Awaitable[None]]",
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    notify: Path | None = None,
    aloud: bool = True,
) -> int:
    """Run a hub until it ends, and return its exit status. With `aloud`, print how its servers are.

    `on_ready` is called with the line in which the hub says that it is ready. If `notify` is a file, `hubbub notify`
    runs beside the hub with the rules of this file. Signals that would end this program are passed on: the first ends
    the hub in order, the second at once.
    """
    import asyncio
    from asyncio.subprocess import DEVNULL, PIPE

    from hubbub_cli.output.server_news import print_while_waiting
    from hubbub_shared.platform.processes import ENDING_SIGNALS

    # In a session of its own, so that Ctrl-C reaches the hub once: from here.
    hub = await asyncio.create_subprocess_exec(
        *command_line, stdin=DEVNULL, stdout=PIPE, start_new_session=True, env=env, cwd=cwd
    )
    for number in ENDING_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, _terminate, hub)
    assert hub.stdout is not None
    background_task = asyncio.create_task(print_while_waiting(lambda: "starting the hub" if aloud else ""))
    async for line in hub.stdout:
        ready = _parse_ready_line(line)
        if ready is not None:
            background_task.cancel()
            await on_ready(ready)
            background_task = asyncio.create_task(_run_beside_hub(str(ready["data_dir"]), notify, aloud=aloud))
    status = await hub.wait()
    background_task.cancel()
    await asyncio.wait([background_task])
    return status


def _terminate(hub: "Process") -> None:
    """Ask a hub to end, unless it has ended."""
    if hub.returncode is None:
        hub.terminate()


def _parse_ready_line(line: bytes) -> Ready | None:
    """Return the ready line of a hub; None for any other line."""
    import json

    try:
        event: object = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and event.get("event") == "ready" else None  # pyright: ignore


async def _run_beside_hub(data_dir: str, notify: Path | None, *, aloud: bool) -> None:
    """Run `hubbub notify` beside a hub, and print how its servers are if `aloud`, until cancelled."""
    import asyncio

    from hubbub_cli.notices.notify_process import run_notify

    async with run_notify(notify, data_dir, aloud=aloud):
        if aloud:
            await _print_server_states(data_dir)
        await asyncio.Event().wait()


async def _print_server_states(data_dir: str) -> None:
    """Print how the servers of a hub are, until the hub ends; print nothing if the hub refuses the connection."""
    from hubbub_cli.output.server_news import print_server_states
    from hubbub_client.errors import HubbubError
    from hubbub_client.hub import connect

    with suppress(HubbubError, ExceptionGroup):  # the hub ends, or lets nobody in: it says so itself
        async with connect(data_dir=data_dir) as hub:
            await print_server_states(hub)


def _find_own_data_dir(settings: Settings) -> Path:
    """Return the data directory on this machine. Raises Usage when the options name a hub by its address."""
    from hubbub_cli.run.session import Usage
    from hubbub_local.platform_dirs import find_data_dir

    if settings.address or os.environ.get("HUBBUB_ADDRESS"):
        raise Usage("a hub is started and ended by its data directory: leave out --address, and unset HUBBUB_ADDRESS")
    return find_data_dir(settings.data_dir).absolute()


def _find_hub_pid(directory: Path) -> int | None:
    """Return the process id of the hub that runs for a data directory; None if none does. Raises FailedPrecondition."""
    from hubbub_local.daemon import find_hub_pid

    try:
        return find_hub_pid(directory)
    except OSError as error:
        raise _make_failure(f"{directory} cannot be looked into: {error.strerror}", "DATA_DIR_UNUSABLE") from None


def _make_failure(message: str, reason: str) -> Exception:
    """Return the error FailedPrecondition with a message and a code."""
    from hubbub_client.errors import FailedPrecondition  # imported late, since it imports gRPC

    return FailedPrecondition(message, reason=reason)


async def _print_started(settings: Settings, ready: Ready, log: Path | None) -> None:
    """Print where a hub that is ready listens, where its files are, and what to type next; with --json one object."""
    files, servers = await _fetch_files_and_server_count(settings, ready)
    if settings.json:
        print_json({**ready, "config_files": files, "log_file": str(log) if log else None, "already": False})
        return
    say(f"The hub is ready, process {ready['pid']}.")
    for line in _list_places(ready["grpc"], ready.get("mcp"), files, Path(str(ready["data_dir"])), log):
        say(line)
    _print_next_steps(settings, Path(str(ready["data_dir"])), servers)


async def _print_running(settings: Settings, directory: Path, pid: int) -> None:
    """Print that a hub runs already, where it listens, and where its files are."""
    from hubbub_client.transport.discovery import read_client_file
    from hubbub_local.daemon import find_log

    files, servers = await _fetch_files_and_server_count(settings, {"data_dir": str(directory)})
    # Read after the hub was asked: a hub that was still starting has written the file meanwhile.
    content = read_client_file(directory / "client.json")
    log = find_log(settings.data_dir)
    if settings.json:
        shape = {"event": "ready", "grpc": content.get("address"), "pid": pid, "data_dir": str(directory)}
        print_json({**shape, "config_files": files, "log_file": None, "already": True})
        return
    say(f"A hub runs already, process {pid}.")
    for line in _list_places(
        content.get("address", "?"), content.get("mcp"), files, directory, log if log.exists() else None
    ):
        say(line)
    _print_next_steps(settings, directory, servers)


def _list_places(
    address: str, mcp: str | None, files: Sequence[str], directory: Path, log: Path | None
) -> Iterator[str]:
    """Yield lines for people that say where the hub listens, and where its files are."""
    yield f"  API            {address}"
    if mcp:
        yield f"  MCP endpoint   {mcp}"
    for each in files:
        exists = Path(each).exists()
        yield f"  configuration  {each}{'' if exists else ' (not there yet; read as soon as it is)'}"
    yield f"  data           {directory}"
    if log is not None:
        yield f"  log            {log}"


def _print_next_steps(settings: Settings, directory: Path, servers: int | None) -> None:
    """Print what to type next: how commands find a hub whose data is elsewhere, and how to add servers if it has none.

    `servers` is the number of servers, None if it is not known.
    """
    from dataclasses import replace

    from hubbub_local.platform_dirs import find_data_dir

    own_settings = settings
    if directory.absolute() != find_data_dir(settings.data_dir).absolute():
        own_settings = replace(settings, data_dir=str(directory))
        say(f"Commands find it with --data-dir {directory}, or with HUBBUB_DATA_DIR={directory}")
    if servers == 0:
        add = own_settings.command("servers", "add", "NAME", "--", "COMMAND")
        say(f"No servers yet. Take over those you have: {own_settings.command('init')}. Add one: {add}")


async def _fetch_files_and_server_count(settings: Settings, ready: Ready) -> tuple[list[str], int | None]:
    """Return the configuration files of the hub, and how many servers it has.

    If the hub does not answer, the result is no files, and None.
    """
    from hubbub_client.errors import HubbubError
    from hubbub_client.hub import connect

    with suppress(HubbubError):
        async with connect(data_dir=str(ready["data_dir"]), name=settings.name) as hub:
            status = await hub.admin.status()
            return [*status.config.files] if status.config else [], len(await hub.servers.list())
    return [], None
