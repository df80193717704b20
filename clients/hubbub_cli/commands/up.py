"""`hubbub up` and `hubbub down`."""

import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubbub_cli.output.printer import note, print_json, say
from hubbub_cli.run.session import BESIDE, Settings, settings_of

if TYPE_CHECKING:
    from asyncio.subprocess import Process

Ready = Mapping[str, Any]

CANNOT_START = 1
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

    from hubbub_cli.notices.notify_process import supervised, table_of
    from hubbub_local import daemon, other_hubs

    settings = settings_of(context)
    directory = _own_directory(settings)
    running = _holder(directory)
    files = [word for each in config or () for word in ("--config", str(Path(each).absolute()))]
    beside = settings.command(*BESIDE, *files)
    try:
        if detach and running is not None:
            asyncio.run(_say_running(settings, directory, running))
            return
        if detach:
            both = supervised(settings.data_dir, config or (), listen) if table_of(config or ()) else None
            started = daemon.start(settings.data_dir, config=config or (), listen=listen, words=both)
            asyncio.run(_say_started(settings, started.ready, started.log))
            return
        if running is not None:
            down = settings.command("down")
            raise daemon.NotStarted(f"a hub already runs for {directory}, process {running}; `{down}` ends it")
        log = daemon.log_of(settings.data_dir) if sys.stderr.isatty() else None
        words = daemon.command(settings.data_dir, log=log, config=config or (), listen=listen)
    except daemon.NotStarted as error:
        raise _failed(f"the hub was not started: {other_hubs.advised(str(error), beside)}", "HUB_NOT_STARTED") from None

    notify = table_of(config or ())
    aloud = not settings.json
    work = foreground(words, lambda ready: _say_started(settings, ready, log), notify=notify, aloud=aloud)
    status = asyncio.run(work)
    if status == CANNOT_START and not settings.json:
        running_too = [each for each in other_hubs.hubs() if each.data_dir != directory]
        for other in running_too:
            note(f"another Hubbub runs: process {other.pid} at {other.address}, its data in {other.data_dir}")
        if running_too:
            note(f"if it has the address, `{beside}` starts one beside it")
    raise typer.Exit(status)


def down(
    context: typer.Context,
    now: Annotated[bool, typer.Option("--now", help="Give calls under way no time to end.")] = False,
) -> None:
    """End the hub of this data directory: calls under way may end first, as the hub's shutdown_grace_s says."""
    from hubbub_local import daemon

    settings = settings_of(context)
    directory = _own_directory(settings)
    pid = _holder(directory)
    if pid is None:
        raise _failed(f"no hub runs for {directory}; `{settings.command('up', '-d')}` starts one", "HUB_UNREACHABLE")
    if not settings.json:
        note(f"Ending the hub of {directory}, process {pid} ...")
    try:
        for seconds in daemon.end(directory, pid, now=now):
            if not settings.json:
                note(f"  {seconds:3.0f} s  it lets calls under way end; `{settings.command('down', '--now')}` does not")
    except daemon.NotEnded as error:
        raise _failed(str(error), "HUB_NOT_ENDED") from None
    if settings.json:
        print_json({"event": "ended", "pid": pid, "data_dir": str(directory)})
    else:
        say(f"The hub has ended; `{settings.command('up', '-d')}` starts it again.")


async def foreground(
    words: Sequence[str],
    on_ready: "Callable[[Ready], Awaitable[None]]",
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    notify: Path | None = None,
    aloud: bool = True,
) -> int:
    """Run a hub until it ends, say how its servers are if `aloud`, and return its exit status.

    With it runs `hubbub notify`, if `notify` is a file with a table for that. Signals that would end this program end
    the hub: the first in order, the second at once.
    """
    import asyncio
    import signal
    from asyncio.subprocess import DEVNULL, PIPE

    from hubbub_cli.output.server_news import beats

    # In a session of its own, so that Ctrl-C reaches the hub once: from here.
    hub = await asyncio.create_subprocess_exec(
        *words, stdin=DEVNULL, stdout=PIPE, start_new_session=True, env=env, cwd=cwd
    )
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(signum, _end, hub)
    assert hub.stdout is not None
    telling = asyncio.create_task(beats(lambda: "starting the hub" if aloud else ""))
    async for line in hub.stdout:
        ready = _ready(line)
        if ready is not None:
            telling.cancel()
            await on_ready(ready)
            telling = asyncio.create_task(_beside(str(ready["data_dir"]), notify, aloud=aloud))
    status = await hub.wait()
    telling.cancel()
    await asyncio.wait([telling])
    return status


def _end(hub: "Process") -> None:
    if hub.returncode is None:
        hub.terminate()


def _ready(line: bytes) -> Ready | None:
    import json

    try:
        event: object = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and event.get("event") == "ready" else None  # pyright: ignore


async def _beside(data_dir: str, notify: Path | None, *, aloud: bool) -> None:
    """Do what goes on beside a hub, until cancelled."""
    import asyncio

    from hubbub_cli.notices.notify_process import notifying

    async with notifying(notify, data_dir, aloud=aloud):
        if aloud:
            await _tell(data_dir)
        await asyncio.Event().wait()


async def _tell(data_dir: str) -> None:
    from hubbub_cli.output.server_news import tell
    from hubbub_client.errors import HubbubError
    from hubbub_client.hub import connect

    with suppress(HubbubError, ExceptionGroup):  # the hub ends, or lets nobody in: it says so itself
        async with connect(data_dir=data_dir) as hub:
            await tell(hub)


def _own_directory(settings: Settings) -> Path:
    """Return the data directory on this machine. Raises Usage when the options name a hub by its address."""
    from hubbub_cli.run.session import Usage
    from hubbub_local.platform_dirs import data_dir

    if settings.address or os.environ.get("HUBBUB_ADDRESS"):
        raise Usage("a hub is started and ended by its data directory: leave out --address, and unset HUBBUB_ADDRESS")
    return data_dir(settings.data_dir).absolute()


def _holder(directory: Path) -> int | None:
    from hubbub_local.daemon import holder

    try:
        return holder(directory)
    except OSError as error:
        raise _failed(f"{directory} cannot be looked into: {error.strerror}", "DATA_DIR_UNUSABLE") from None


def _failed(message: str, reason: str) -> Exception:
    from hubbub_client.errors import FailedPrecondition  # imported late, since it imports gRPC

    return FailedPrecondition(message, reason=reason)


async def _say_started(settings: Settings, ready: Ready, log: Path | None) -> None:
    """Say where the hub that is ready has what; with --json in one object, which begins as the hub's own line."""
    files, servers = await _ask(settings, ready)
    if settings.json:
        print_json({**ready, "config_files": files, "log_file": str(log) if log else None, "already": False})
        return
    say(f"The hub is ready, process {ready['pid']}.")
    for line in _places(ready["grpc"], ready.get("mcp"), files, Path(str(ready["data_dir"])), log):
        say(line)
    _say_next(settings, Path(str(ready["data_dir"])), servers)


async def _say_running(settings: Settings, directory: Path, pid: int) -> None:
    """Say that a hub runs already, and where it has what."""
    from hubbub_local.daemon import log_of

    files, servers = await _ask(settings, {"data_dir": str(directory)})
    content = client_of(directory)  # read now: a hub that was still starting has written it meanwhile
    log = log_of(settings.data_dir)
    if settings.json:
        shape = {"event": "ready", "grpc": content.get("address"), "pid": pid, "data_dir": str(directory)}
        print_json({**shape, "config_files": files, "log_file": None, "already": True})
        return
    say(f"A hub runs already, process {pid}.")
    for line in _places(
        content.get("address", "?"), content.get("mcp"), files, directory, log if log.exists() else None
    ):
        say(line)
    _say_next(settings, directory, servers)


def client_of(directory: Path) -> dict[str, str]:
    """Return what the hub's client.json says, without the token."""
    import json

    with suppress(OSError, ValueError):
        content: Any = json.loads((directory / "client.json").read_bytes())
        if isinstance(content, dict):
            return {str(key): str(value) for key, value in content.items() if key != "token"}  # pyright: ignore
    return {}


def _places(address: str, mcp: str | None, files: Sequence[str], directory: Path, log: Path | None) -> Iterator[str]:
    yield f"  API            {address}"
    if mcp:
        yield f"  MCP endpoint   {mcp}"
    for each in files:
        there = Path(each).exists()
        yield f"  configuration  {each}{'' if there else ' (not there yet; read as soon as it is)'}"
    yield f"  data           {directory}"
    if log is not None:
        yield f"  log            {log}"


def _say_next(settings: Settings, directory: Path, servers: int | None) -> None:
    """Say what to type next, if there are no servers, or if commands look for the hub somewhere else."""
    from dataclasses import replace

    from hubbub_local.platform_dirs import data_dir

    at = settings
    if directory.absolute() != data_dir(settings.data_dir).absolute():
        at = replace(settings, data_dir=str(directory))
        say(f"Commands find it with --data-dir {directory}, or with HUBBUB_DATA_DIR={directory}")
    if servers == 0:
        add = at.command("servers", "add", "NAME", "--", "COMMAND")
        say(f"No servers yet. Take over those you have: {at.command('init')}. Add one: {add}")


async def _ask(settings: Settings, ready: Ready) -> tuple[list[str], int | None]:
    """Return the configuration files of the hub and how many servers it has, as far as it says so."""
    from hubbub_client.errors import HubbubError
    from hubbub_client.hub import connect

    with suppress(HubbubError):
        async with connect(data_dir=str(ready["data_dir"]), name=settings.name) as hub:
            status = await hub.admin.status()
            return [*status.config.files] if status.config else [], len(await hub.servers.list())
    return [], None
