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
from hubbub_cli.run.session import Settings, get_settings
from hubbub_cli.syntax.group import Commands
from hubbub_frontend.shell_commands import with_hub_options

if TYPE_CHECKING:
    from hubbub_local.platform_dirs import Machine
    from hubbub_local.services import UserService

START_LIMIT_S = 5.0
"""Seconds after a start in which a hub that cannot run has ended; one that runs has its data directory earlier."""

POLL_S = 0.1

app = Commands("The hub as a service of yours, which starts when you log in: systemd on Linux, launchd on macOS.")

KEPT_VARIABLES = ("XDG_CONFIG_HOME", "XDG_DATA_HOME")
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

    settings, machine = get_settings(context), _find_machine()
    service = _run_service_action(lambda: _make_service(settings, config or [], machine))
    if only_print:
        streams.say(
            _run_service_action(lambda: services.render_service_file(service, services.find_service_kind(machine)))
            .decode()
            .rstrip()
        )
        return
    _check_no_other_hub(settings)
    path = _run_service_action(lambda: services.write_service_file(machine, service))
    if not _run_service_action(lambda: services.is_manager_reachable(machine)):
        enable = f"systemctl --user enable --now {services.UNIT}"
        raise _make_failure(
            f"{path} is written, but not enabled: systemd does not answer for you here (a container, or no login "
            f"session). Where it does: `{enable}`. Until then: `{settings.command('up', '-d')}`"
        )
    _run_service_action(lambda: services.enable_service(machine))
    _wait_until_running(settings)
    if settings.json:
        print_json({"event": "installed", "file": str(path)})
        return
    say(f"Installed and started: {path}")
    say(with_hub_options("How it is: hubbub service status. Its log: hubbub service logs"))
    if services.find_service_kind(machine) == "systemd":
        say("To let it run also while you are not logged in: loginctl enable-linger")


@app.command("start", example="service start")
def start(context: typer.Context) -> None:
    """Start the installed service."""
    from hubbub_local import services

    _run_service_action(lambda: services.find_installed_file(_find_machine()))
    _check_no_other_hub(get_settings(context))
    _run_service_action(lambda: services.start_service(_find_machine()))
    _wait_until_running(get_settings(context))
    _print_event(context, "started", "The service is started.")


@app.command("stop", example="service stop")
def stop(context: typer.Context) -> None:
    """Stop the service until you log in again, or start it."""
    from hubbub_local import services

    _run_service_action(lambda: services.stop_service(_find_machine()))
    _print_event(context, "stopped", "The service is stopped; it starts again when you log in.")


@app.command("status", example="service status")
def status(context: typer.Context) -> None:
    """Show how the service is, as the system has it; `hubbub status` shows how the hub is."""
    from hubbub_local import services

    try:
        services.find_installed_file(_find_machine())
    except services.ServiceFailed as error:
        if get_settings(context).json:
            print_json({"installed": False, "message": str(error)})
        else:
            say(str(error))
        return
    _replace_process(_run_service_action(lambda: services.make_status_command(_find_machine())))


@app.command("logs", example="service logs --follow")
def logs(
    context: typer.Context,
    lines: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="The last N lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", help="Show new lines as they come.")] = False,
) -> None:
    """Show the last lines of the service's log."""
    from hubbub_local import daemon, services

    log = daemon.find_log(get_settings(context).data_dir)
    _replace_process(_run_service_action(lambda: services.make_log_command(_find_machine(), log, lines, follow=follow)))


@app.command("uninstall", example="service uninstall")
def uninstall(context: typer.Context) -> None:
    """Stop the service and remove it; the configuration and the data stay."""
    from hubbub_local import services

    path = _run_service_action(lambda: services.uninstall_service(_find_machine()))
    _print_event(context, "uninstalled", f"Removed {path}; configuration and data stay.")


def _make_service(settings: Settings, config: list[str], machine: "Machine") -> "UserService":
    """Return what the service runs, with which environment and log. Raises ServiceFailed if no hub is installed."""
    from hubbub_local import daemon, services
    from hubbub_local.platform_dirs import list_config_files

    # The service has neither this directory nor all variables of this shell.
    config_files = [Path(each).expanduser() for each in config] or list_config_files(machine.environ)
    files = [str(each.absolute()) for each in config_files]
    data_dir = settings.data_dir or machine.environ.get("HUBBUB_DATA_DIR") or machine.environ.get("HUBBUBD_DATA_DIR")
    try:
        words = daemon.make_command(str(Path(data_dir).absolute()) if data_dir else None, config=files)
    except daemon.NotStarted as error:
        raise services.ServiceFailed(str(error)) from None
    environ = {name: value for name in ("PATH", *KEPT_VARIABLES) if (value := machine.environ.get(name))}
    log, member = daemon.find_log(settings.data_dir).absolute(), _is_fleet_member(files, machine)
    return services.UserService(words=words, environ=environ, log=log, home=machine.home.absolute(), member=member)


def _is_fleet_member(files: list[str], machine: "Machine") -> bool:
    """Return whether one of the configuration files, by default the usual one, makes the hub a member of a fleet."""
    from hubbub_local import config_file, platform_dirs

    for path in map(Path, files or [str(platform_dirs.find_config_file(machine))]):
        try:
            if "fleet" in config_file.parse_config(config_file.read_config(path)):
                return True
        except (config_file.Unchangeable, OSError):  # what is wrong with it, the hub says
            continue
    return False


def _check_no_other_hub(settings: Settings) -> None:
    """Raise FailedPrecondition if a hub that is not the service has the data directory that the service would use.

    If that cannot be found out, nothing is raised.
    """
    from hubbub_local import daemon, services
    from hubbub_local.platform_dirs import find_data_dir

    directory = find_data_dir(settings.data_dir)
    try:
        pid = daemon.find_hub_pid(directory)
    except OSError:
        return
    if pid is not None and pid != _run_service_action(lambda: services.find_service_pid(_find_machine())):
        raise _make_failure(f"a hub runs for {directory}, process {pid}; end it first: `{settings.command('down')}`")


def _wait_until_running(settings: Settings) -> None:
    """Wait until the hub of the service has locked its data directory, START_LIMIT_S at most.

    Raises FailedPrecondition if the service does not run any more then. If it runs and has no lock, it may still be
    starting, so nothing is raised.
    """
    from hubbub_local import daemon, services
    from hubbub_local.platform_dirs import find_data_dir

    directory, machine = find_data_dir(settings.data_dir), _find_machine()
    give_up = time.monotonic() + START_LIMIT_S
    while True:
        pid = _run_service_action(lambda: services.find_service_pid(machine))
        with suppress(OSError):  # the directory may not be there yet
            if pid is not None and pid == daemon.find_hub_pid(directory):
                return
        if time.monotonic() >= give_up:
            break
        time.sleep(POLL_S)
    if pid is None:
        logs = settings.command("service", "logs")
        raise _make_failure(f"the service was started, and does not run any more; its log says why: `{logs}`")


def _find_machine() -> "Machine":
    from hubbub_local.platform_dirs import Machine

    return Machine.here()


def _run_service_action(action: Callable[[], Any]) -> Any:
    """Return the result of an action on the service. Raises FailedPrecondition with advice if the system refuses."""
    from hubbub_local import services

    try:
        return action()
    except services.NoServices as error:
        words = shlex.join([sys.argv[0], "up", "-d"])
        raise _make_failure(
            f"{error}. `hubbub up -d` starts a hub; cron can do it at each boot: `@reboot {words}`"
        ) from None
    except services.ServiceFailed as error:
        raise _make_failure(str(error)) from None


def _make_failure(message: str) -> Exception:
    """Return the error FailedPrecondition with a message about the service."""
    from hubbub_client.errors import FailedPrecondition  # imported late, since it imports gRPC

    return FailedPrecondition(message, reason="SERVICE_FAILED")


def _print_event(context: typer.Context, event: str, words: str) -> None:
    """Print an event as JSON, or in words for people."""
    if get_settings(context).json:
        print_json({"event": event})
    else:
        say(words)


def _replace_process(words: list[str]) -> None:
    """Replace this process by a program of the system (exec). Raises FailedPrecondition."""
    try:
        os.execvp(words[0], words)  # noqa: S606 - a program of the system, by its name
    except OSError as error:
        raise _make_failure(f"{words[0]} cannot be started: {error.strerror}") from None
