"""The hub as a service of the person who is logged in: a user unit of systemd, or an agent of launchd."""

import os
import plistlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from hubbub_client import numbers
from hubbub_local.platform_dirs import Machine
from hubbub_shared.platform import processes

UNIT: Final = "hubbub.service"
LABEL: Final = "hubbub"
"""The service's name at launchd."""

PID: Final = re.compile(r'^MainPID=(\d+)$|"PID" = (\d+);', re.MULTILINE)
"""The process of a service, as `systemctl show` and `launchctl list` say it."""

END_LIMIT_S: Final = 60
"""Seconds that the hub has to end: it gives calls under way `shutdown_grace_s`, and ends its servers itself."""

RESTART_INTERVAL_S: Final = 30
"""Seconds between two starts at launchd, which tries again also where the configuration is wrong (exit status 2)."""

COMMAND_LIMIT_S: Final = 60.0
"""Seconds for a program of the system."""

Kind = Literal["systemd", "launchd"]


class ServiceFailed(Exception):
    """The system refused an action, or failed; the message is one line for people, with the system's own text."""


class NoServices(ServiceFailed):
    """This system has no services that a person can install without being its administrator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserService:
    """What is to run: the command, its environment, and the file of its log where the system keeps none itself.

    All paths are absolute: a service has no folder of this shell, and nobody expands `~` for it.
    """

    words: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    log: Path
    home: Path = field(default_factory=Path.home)
    """The folder in which the hub starts servers that name no folder."""

    member: bool = False
    """Whether the hub is a member of a fleet: then systemd releases its lease after it ends, even killed."""


def find_service_kind(machine: Machine) -> Kind:
    """Return which services this system has. Raises NoServices."""
    if machine.platform == "darwin":
        return "launchd"
    if machine.platform.startswith("linux") and shutil.which("systemctl", path=machine.environ.get("PATH")):
        return "systemd"
    raise NoServices("this system has neither systemd nor launchd, so no service can be installed here")


def find_service_file(machine: Machine, service_kind: Kind) -> Path:
    """Return where the file of the service belongs."""
    if service_kind == "launchd":
        return machine.home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    return machine.application_dir("systemd") / "user" / UNIT


def render_service_file(service: UserService, service_kind: Kind) -> bytes:
    """Return the content of the service's file. Raises ServiceFailed for a word that cannot be printed."""
    for word in (*service.words, *service.environ, *service.environ.values(), str(service.log), str(service.home)):
        if not word.isprintable():
            raise ServiceFailed(f"a file of {service_kind} cannot have {word!r}: a character of it cannot be printed")
    return _render_plist(service) if service_kind == "launchd" else _render_unit(service).encode()


def _render_unit(service: UserService) -> str:
    """Return a unit for the user manager.

    It confines the hub only as far as its MCP servers can live with: they are the person's own programs, need the home
    directory, and may compile code as they run.
    """
    command = " ".join(_quote_for_unit(word, command=True) for word in service.words)
    post = f"# Others need not wait for the lease of a hub that was killed.\nExecStopPost=-{command} --release\n"
    environ = "".join(f"Environment={_quote_for_unit(f'{name}={value}')}\n" for name, value in service.environ.items())
    return f"""\
# Written by `hubbub service install`, which replaces it; `systemctl --user edit hubbub` keeps changes apart.
[Unit]
Description=Hubbub, one hub for many MCP servers

[Service]
Type=exec
ExecStart={command}
{post if service.member else ""}{environ}WorkingDirectory=%h
# The hub ends its servers itself, and gives calls under way `shutdown_grace_s` to end.
KillMode=mixed
TimeoutStopSec={END_LIMIT_S}
Restart=on-failure
RestartSec=5
# A configuration that is wrong does not become right by another start.
RestartPreventExitStatus=2
# A server that takes too much memory is ended alone.
OOMPolicy=continue
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


def _quote_for_unit(word: str, *, command: bool = False) -> str:
    """Return a word as systemd.syntax(7) quotes it, and with its specifiers and variables taken literally."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped.replace("$", "$$") if command else escaped}"'


def _render_plist(service: UserService) -> bytes:
    """Return the file of a launchd agent (launchd.plist(5))."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": [*service.words, "--log-file", str(service.log)],
            "EnvironmentVariables": dict(service.environ),
            "WorkingDirectory": str(service.home),
            # What the hub says before it has read where its log is: what is wrong with its configuration.
            "StandardErrorPath": str(service.log),
            "RunAtLoad": True,
            # Started again after a crash, and not after it was asked to end.
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": RESTART_INTERVAL_S,
            "ExitTimeOut": END_LIMIT_S,
            "ProcessType": "Interactive",
            "Umask": 0o077,
        }
    )


def write_service_file(machine: Machine, service: UserService) -> Path:
    """Write the file of the service, replacing an older one; return its path. Raises ServiceFailed."""
    service_kind = find_service_kind(machine)
    path, text = find_service_file(machine, service_kind), render_service_file(service, service_kind)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if service_kind == "launchd":  # it makes the file of the log, and no folder
            service.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft_file = path.with_name(f".{path.name}.{os.getpid()}")
        draft_file.write_bytes(text)
        draft_file.replace(path)
    except OSError as error:
        raise ServiceFailed(f"{path} cannot be written: {error.strerror}") from None
    return path


def enable_service(machine: Machine) -> None:
    """Start the service now, again if it runs, and have it start whenever the person logs in. Raises ServiceFailed."""
    if find_service_kind(machine) == "launchd":
        _run_launchctl("bootout", check=False)  # fails if it is not loaded
        _run_or_fail("launchctl", "bootstrap", _make_launchd_domain(), str(find_service_file(machine, "launchd")))
        return
    _run_or_fail("systemctl", "--user", "daemon-reload")
    _run_or_fail("systemctl", "--user", "enable", UNIT)
    _run_or_fail("systemctl", "--user", "restart", UNIT)


def start_service(machine: Machine) -> None:
    """Start the installed service. Raises ServiceFailed."""
    find_installed_file(machine)  # raises if there is none
    if find_service_kind(machine) == "launchd":
        _run_launchctl("bootstrap", str(find_service_file(machine, "launchd")), check=False)  # fails if it is loaded
        _run_launchctl("kickstart")
        return
    _run_or_fail("systemctl", "--user", "start", UNIT)


def stop_service(machine: Machine) -> None:
    """Stop the service until the next login. Raises ServiceFailed."""
    find_installed_file(machine)  # raises if there is none
    if find_service_kind(machine) == "launchd":
        _run_launchctl("bootout")
        return
    _run_or_fail("systemctl", "--user", "stop", UNIT)


def uninstall_service(machine: Machine) -> Path:
    """Stop the service and remove its file; return the file's path.

    Raises ServiceFailed if there is no file, if it cannot be removed, or if a program of the system cannot run.
    """
    path = find_installed_file(machine)
    if find_service_kind(machine) == "launchd":
        _run_launchctl("bootout", check=False)  # fails if it is not loaded
    elif is_manager_reachable(machine):
        # If systemctl fails here or below, the service is uninstalled all the same.
        _run_or_fail("systemctl", "--user", "disable", "--now", UNIT, check=False)
    try:
        path.unlink()
    except OSError as error:
        raise ServiceFailed(f"{path} cannot be removed: {error.strerror}") from None
    if find_service_kind(machine) == "systemd" and is_manager_reachable(machine):
        _run_or_fail("systemctl", "--user", "daemon-reload", check=False)
    return path


def make_status_command(machine: Machine) -> list[str]:
    """Return the command of the system that shows how the service is. Raises ServiceFailed."""
    find_installed_file(machine)  # raises if there is none
    if find_service_kind(machine) == "launchd":
        return ["launchctl", "print", f"{_make_launchd_domain()}/{LABEL}"]
    return ["systemctl", "--user", "--no-pager", "status", UNIT]


def make_log_command(machine: Machine, log: Path, lines: int, *, follow: bool) -> list[str]:
    """Return the command of the system that shows the last lines of the service's log. Raises ServiceFailed.

    `log` is the file of the log, used where the system keeps none itself.
    """
    find_installed_file(machine)  # raises if there is none
    if find_service_kind(machine) == "launchd":
        return ["tail", "-n", str(lines), *(["-F"] if follow else []), str(log)]
    options = ["--follow"] if follow else ["--no-pager"]
    return ["journalctl", "--user-unit", UNIT, "--output", "cat", "--lines", str(lines), *options]


def find_service_pid(machine: Machine) -> int | None:
    """Return the process id of the service; None if it does not run, or the system does not say.

    Raises ServiceFailed.
    """
    if find_service_kind(machine) == "launchd":
        output = _run_command("launchctl", "list", LABEL).stdout
    else:
        output = _run_command("systemctl", "--user", "show", "--property=MainPID", UNIT).stdout
    pid_match = PID.search(output)
    return numbers.whole_text(pid_match[1] or pid_match[2]) or None if pid_match else None


def is_manager_reachable(machine: Machine) -> bool:
    """Return whether the system's service manager answers this person; in a container and after `su` it does not.

    Raises ServiceFailed.
    """
    if find_service_kind(machine) == "launchd":
        return shutil.which("launchctl") is not None
    return _run_command("systemctl", "--user", "show-environment").returncode == 0


def find_installed_file(machine: Machine) -> Path:
    """Return the file of the installed service. Raises ServiceFailed if there is none."""
    path = find_service_file(machine, find_service_kind(machine))
    if not path.exists():
        raise ServiceFailed(f"no service is installed: there is no {path}; `hubbub service install` makes it")
    return path


def _make_launchd_domain() -> str:
    """Return what launchctl calls all services of this user."""
    return f"gui/{processes.user_id()}"


def _run_launchctl(verb: str, *words: str, check: bool = True) -> None:
    """Run a verb of launchctl on the service. Raises ServiceFailed; without `check`, only if it cannot be run."""
    # To be loaded (bootstrap), a service is named by its domain and its file, which is one of the `words`.
    where = _make_launchd_domain() if verb == "bootstrap" else f"{_make_launchd_domain()}/{LABEL}"
    _run_or_fail("launchctl", verb, where, *words, check=check)


def _run_or_fail(*command_line: str, check: bool = True) -> None:
    """Run a program of the system. Raises ServiceFailed if it cannot run, or with `check` if it fails."""
    process = _run_command(*command_line)
    if check and process.returncode:
        *_, message = ["", *(process.stderr or process.stdout).splitlines()]
        raise ServiceFailed(f"`{' '.join(command_line)}` failed: {message or f'exit status {process.returncode}'}")


def _run_command(*command_line: str) -> "subprocess.CompletedProcess[str]":
    """Run a program of the system, and return its output and status. Raises ServiceFailed if it cannot run."""
    try:
        return subprocess.run(  # noqa: S603 - a program of the system, by its name
            command_line, capture_output=True, text=True, check=False, timeout=COMMAND_LIMIT_S, errors="replace"
        )
    except OSError as error:
        raise ServiceFailed(f"{command_line[0]} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ServiceFailed(f"`{' '.join(command_line)}` did not end within {COMMAND_LIMIT_S:g} s") from None
