"""`hubbub service`."""

import os
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubbub_cli.output.printer import print_json, say
from hubbub_cli.run import streams
from hubbub_cli.run.session import Settings, settings_of
from hubbub_cli.syntax.group import Commands
from hubbub_frontend.shell_commands import with_hub_options

if TYPE_CHECKING:
    from hubbub_local.platform_dirs import Machine
    from hubbub_local.services import UserService

SETTLE_S = 5.0
"""Seconds after a start in which a hub that cannot run has ended; one that runs has its data directory earlier."""

LOOK_S = 0.1

app = Commands("The hub as a service of yours, which starts when you log in: systemd on Linux, launchd on macOS.")

KEPT = ("XDG_CONFIG_HOME", "XDG_DATA_HOME")
"""Variables that say where the hub finds its files, as `hubbub up` would find them now."""


@app.command("install", example="service install")
def install(
    context: typer.Context,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A configuration file, TOML or JSON; repeatable. Else the default one."),
    ] = None,
    only_print: Annotated[bool, typer.Option("--print", help="Change nothing: print the file of the service.")] = False,
) -> None:
    """Install the service and start it; it starts again whenever you log in.

    It has the PATH of this shell, so that it finds the programs of your MCP servers. When that changes, install it
    again.
    """
    from hubbub_local import services

    settings, at = settings_of(context), _here()
    service = _asked(lambda: _service(settings, config or [], at))
    if only_print:
        streams.say(_asked(lambda: services.content(service, services.kind(at))).decode().rstrip())
        return
    _no_other(settings)
    path = _asked(lambda: services.install(at, service))
    if not _asked(lambda: services.reachable(at)):
        enable = f"systemctl --user enable --now {services.UNIT}"
        raise _failed(
            f"{path} is written, but not enabled: systemd does not answer for you here (a container, or no login "
            f"session). Where it does: `{enable}`. Until then: `{settings.command('up', '-d')}`"
        )
    _asked(lambda: services.enable(at))
    _runs(settings)
    if settings.json:
        print_json({"event": "installed", "file": str(path)})
        return
    say(f"Installed and started: {path}")
    say(with_hub_options("How it is: hubbub service status. Its log: hubbub service logs"))
    if services.kind(at) == "systemd":
        say("To let it run also while you are not logged in: loginctl enable-linger")


@app.command("start", example="service start")
def start(context: typer.Context) -> None:
    """Start the installed service."""
    from hubbub_local import services

    _asked(lambda: services.installed(_here()))
    _no_other(settings_of(context))
    _asked(lambda: services.start(_here()))
    _runs(settings_of(context))
    _done(context, "started", "The service is started.")


@app.command("stop", example="service stop")
def stop(context: typer.Context) -> None:
    """Stop the service until you log in again, or start it."""
    from hubbub_local import services

    _asked(lambda: services.stop(_here()))
    _done(context, "stopped", "The service is stopped; it starts again when you log in.")


@app.command("status", example="service status")
def status(context: typer.Context) -> None:
    """Show how the service is, as the system has it; `hubbub status` shows how the hub is."""
    from hubbub_local import services

    try:
        services.installed(_here())
    except services.ServiceFailed as error:
        if settings_of(context).json:
            print_json({"installed": False, "message": str(error)})
        else:
            say(str(error))
        return
    _become(_asked(lambda: services.status_command(_here())))


@app.command("logs", example="service logs --follow")
def logs(
    context: typer.Context,
    lines: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="The last N lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", help="Show new lines as they come.")] = False,
) -> None:
    """Show the last lines of the service's log."""
    from hubbub_local import daemon, services

    log = daemon.log_of(settings_of(context).data_dir)
    _become(_asked(lambda: services.log_command(_here(), log, lines, follow=follow)))


@app.command("uninstall", example="service uninstall")
def uninstall(context: typer.Context) -> None:
    """Stop the service and remove it; the configuration and the data stay."""
    from hubbub_local import services

    path = _asked(lambda: services.uninstall(_here()))
    _done(context, "uninstalled", f"Removed {path}; configuration and data stay.")


def _service(settings: Settings, config: list[str], at: "Machine") -> "UserService":
    """Return what the service runs. Raises ServiceFailed."""
    from hubbub_local import daemon, services

    # The service has neither this directory nor all variables of this shell.
    given = config or [each for each in at.environ.get("HUBBUBD_CONFIG", "").split(os.pathsep) if each]
    files = [str(Path(each).expanduser().absolute()) for each in given]
    named = settings.data_dir or at.environ.get("HUBBUB_DATA_DIR") or at.environ.get("HUBBUBD_DATA_DIR")
    try:
        words = daemon.command(str(Path(named).absolute()) if named else None, config=files)
    except daemon.NotStarted as error:
        raise services.ServiceFailed(str(error)) from None
    environ = {name: value for name in ("PATH", *KEPT) if (value := at.environ.get(name))}
    log, member = daemon.log_of(settings.data_dir), _in_fleet(files, at)
    return services.UserService(words=words, environ=environ, log=log, member=member)


def _in_fleet(files: list[str], at: "Machine") -> bool:
    """Return whether one of the configuration files, by default the usual one, makes the hub a member of a fleet."""
    from hubbub_local import config_file, platform_dirs

    for path in map(Path, files or [str(platform_dirs.config_file(at))]):
        try:
            if "fleet" in config_file.loaded(config_file.read(path)):
                return True
        except (config_file.Unchangeable, OSError):  # what is wrong with it, the hub says
            continue
    return False


def _no_other(settings: Settings) -> None:
    """Refuse while a hub runs that the service would find its data taken by. Raises FailedPrecondition."""
    from hubbub_local import daemon, services
    from hubbub_local.platform_dirs import data_dir

    directory = data_dir(settings.data_dir)
    try:
        pid = daemon.holder(directory)
    except OSError:
        return
    if pid is not None and pid != _asked(lambda: services.running(_here())):
        raise _failed(f"a hub runs for {directory}, process {pid}; end it first: `{settings.command('down')}`")


def _runs(settings: Settings) -> None:
    """Wait a little until the service has the data directory. Raises FailedPrecondition if it does not run then."""
    from hubbub_local import daemon, services
    from hubbub_local.platform_dirs import data_dir

    directory, at = data_dir(settings.data_dir), _here()
    give_up = time.monotonic() + SETTLE_S
    while True:
        pid = _asked(lambda: services.running(at))
        with suppress(OSError):
            if pid is not None and pid == daemon.holder(directory):
                return
        if time.monotonic() >= give_up:
            break
        time.sleep(LOOK_S)
    if pid is None:
        logs = settings.command("service", "logs")
        raise _failed(f"the service was started, and does not run any more; its log says why: `{logs}`")


def _here() -> "Machine":
    from hubbub_local.platform_dirs import Machine

    return Machine.here()


def _asked(work: Callable[[], Any]) -> Any:
    """Do what the system is asked; its refusal is an error of this command, with what to do instead."""
    from hubbub_local import services

    try:
        return work()
    except services.NoServices as error:
        words = shlex.join([sys.argv[0], "up", "-d"])
        raise _failed(f"{error}. `hubbub up -d` starts a hub; cron can do it at each boot: `@reboot {words}`") from None
    except services.ServiceFailed as error:
        raise _failed(str(error)) from None


def _failed(message: str) -> Exception:
    from hubbub_client.errors import FailedPrecondition  # imported late, since it imports gRPC

    return FailedPrecondition(message, reason="SERVICE_FAILED")


def _done(context: typer.Context, event: str, words: str) -> None:
    if settings_of(context).json:
        print_json({"event": event})
    else:
        say(words)


def _become(words: list[str]) -> None:
    """Let a program of the system go on in place of this one."""
    try:
        os.execvp(words[0], words)  # noqa: S606 - a program of the system, by its name
    except OSError as error:
        raise _failed(f"{words[0]} cannot be started: {error.strerror}") from None
