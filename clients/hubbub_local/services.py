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

UNIT: Final = "hubbub.service"
LABEL: Final = "hubbub"
"""The service's name at launchd."""

PID: Final = re.compile(r'^MainPID=(\d+)$|"PID" = (\d+);', re.MULTILINE)
"""The process of a service, as `systemctl show` and `launchctl list` say it."""

LIMIT_S: Final = 60.0
"""Seconds for a program of the system."""

Kind = Literal["systemd", "launchd"]


class ServiceFailed(Exception):
    """The system did not do what was asked; the text says what it said, in a line for people."""


class NoServices(ServiceFailed):
    """This system has no services that a person can install without being its administrator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserService:
    """What is to run: the command, its environment, and the file of its log where the system keeps none itself."""

    words: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    log: Path
    member: bool = False
    """Whether it is a member of a fleet, which is told of its end, however it ends."""


def kind(at: Machine) -> Kind:
    """Return which services this system has. Raises NoServices."""
    if at.platform == "darwin":
        return "launchd"
    if at.platform.startswith("linux") and shutil.which("systemctl", path=at.environ.get("PATH")):
        return "systemd"
    raise NoServices("this system has neither systemd nor launchd, so no service can be installed here")


def file(at: Machine, which: Kind) -> Path:
    """Return where the file of the service belongs."""
    if which == "launchd":
        return at.home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    return at.applications("systemd") / "user" / UNIT


def content(service: UserService, which: Kind) -> bytes:
    """Return the file of the service. Raises ServiceFailed for a word that the system cannot be told."""
    return _plist(service) if which == "launchd" else _unit(service).encode()


def _unit(service: UserService) -> str:
    """Return a unit for the user manager.

    It confines the hub only as far as its MCP servers can live with: they are the person's own programs, need the home
    directory, and may compile code as they run.
    """
    command = " ".join(_quoted(word, command=True) for word in service.words)
    post = f"# Others need not wait for the lease of a hub that was killed.\nExecStopPost=-{command} --release\n"
    environ = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in service.environ.items())
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
TimeoutStopSec=60
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


def _quoted(word: str, *, command: bool = False) -> str:
    """Return a word as systemd.syntax(7) quotes it, and with its specifiers and variables taken literally."""
    if any(not each.isprintable() for each in word):
        raise ServiceFailed(f"a unit of systemd cannot have {word!r}: it has a character that cannot be printed")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped.replace("$", "$$") if command else escaped}"'


def _plist(service: UserService) -> bytes:
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": [*service.words, "--log-file", str(service.log)],
            "EnvironmentVariables": dict(service.environ),
            "RunAtLoad": True,
            # Started again after a crash, and not after it was told to end.
            "KeepAlive": {"SuccessfulExit": False},
            "ProcessType": "Interactive",
            "Umask": 0o077,
        }
    )


def install(at: Machine, service: UserService) -> Path:
    """Write the file of the service, replacing an older one; return its path. Raises ServiceFailed."""
    which = kind(at)
    path, text = file(at, which), content(service, which)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_bytes(text)
        draft.replace(path)
    except OSError as error:
        raise ServiceFailed(f"{path} cannot be written: {error.strerror}") from None
    return path


def enable(at: Machine) -> None:
    """Let the system start the service now, and whenever the person logs in. Raises ServiceFailed."""
    if kind(at) == "launchd":
        _launchctl("bootout", check=False)
        _ran("launchctl", "bootstrap", _domain(), str(file(at, "launchd")))
        return
    _ran("systemctl", "--user", "daemon-reload")
    _ran("systemctl", "--user", "enable", UNIT)
    _ran("systemctl", "--user", "restart", UNIT)


def start(at: Machine) -> None:
    """Start the installed service. Raises ServiceFailed."""
    installed(at)
    if kind(at) == "launchd":
        _launchctl("bootstrap", str(file(at, "launchd")), check=False)
        _launchctl("kickstart")
        return
    _ran("systemctl", "--user", "start", UNIT)


def stop(at: Machine) -> None:
    """Stop the service until the next login. Raises ServiceFailed."""
    installed(at)
    if kind(at) == "launchd":
        _launchctl("bootout")
        return
    _ran("systemctl", "--user", "stop", UNIT)


def uninstall(at: Machine) -> Path:
    """Stop the service and remove its file; return its path. Raises ServiceFailed if there is none."""
    path = installed(at)
    if kind(at) == "launchd":
        _launchctl("bootout", check=False)
    elif reachable(at):
        _ran("systemctl", "--user", "disable", "--now", UNIT, check=False)
    try:
        path.unlink()
    except OSError as error:
        raise ServiceFailed(f"{path} cannot be removed: {error.strerror}") from None
    if kind(at) == "systemd" and reachable(at):
        _ran("systemctl", "--user", "daemon-reload", check=False)
    return path


def status_command(at: Machine) -> list[str]:
    """Return the command of the system that shows how the service is. Raises ServiceFailed."""
    installed(at)
    if kind(at) == "launchd":
        return ["launchctl", "print", f"{_domain()}/{LABEL}"]
    return ["systemctl", "--user", "--no-pager", "status", UNIT]


def log_command(at: Machine, log: Path, lines: int, *, follow: bool) -> list[str]:
    """Return the command of the system that shows the last lines of the service's log. Raises ServiceFailed."""
    installed(at)
    if kind(at) == "launchd":
        return ["tail", "-n", str(lines), *(["-F"] if follow else []), str(log)]
    following = ["--follow"] if follow else ["--no-pager"]
    return ["journalctl", "--user-unit", UNIT, "--output", "cat", "--lines", str(lines), *following]


def running(at: Machine) -> int | None:
    """Return the process id of the service; None if it does not run, or the system does not say."""
    if kind(at) == "launchd":
        said = _run("launchctl", "list", LABEL).stdout
    else:
        said = _run("systemctl", "--user", "show", "--property=MainPID", UNIT).stdout
    found = PID.search(said)
    return numbers.whole_text(found[1] or found[2]) or None if found else None


def reachable(at: Machine) -> bool:
    """Return whether the system's service manager answers this person: not in a container, nor after `su`."""
    if kind(at) == "launchd":
        return shutil.which("launchctl") is not None
    return _run("systemctl", "--user", "show-environment").returncode == 0


def installed(at: Machine) -> Path:
    """Return the file of the installed service. Raises ServiceFailed if there is none."""
    path = file(at, kind(at))
    if not path.exists():
        raise ServiceFailed(f"no service is installed: there is no {path}; `hubbub service install` makes it")
    return path


def _domain() -> str:
    return f"gui/{os.getuid()}"


def _launchctl(verb: str, *words: str, check: bool = True) -> None:
    where = _domain() if verb == "bootstrap" else f"{_domain()}/{LABEL}"
    _ran("launchctl", verb, where, *words, check=check)


def _ran(*words: str, check: bool = True) -> None:
    done = _run(*words)
    if check and done.returncode:
        *_, said = ["", *(done.stderr or done.stdout).splitlines()]
        raise ServiceFailed(f"`{' '.join(words)}` failed: {said or f'exit status {done.returncode}'}")


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT_S, errors="replace")  # noqa: S603
    except OSError as error:
        raise ServiceFailed(f"{words[0]} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ServiceFailed(f"`{' '.join(words)}` did not end within {LIMIT_S:g} s") from None
