"""What `hubbub doctor` looks at on this machine, and what it can repair: the files of a hub that runs here, or would.

A repair changes permissions of the caller's own files, makes a directory, or removes a socket that nobody listens at.
Nothing else is repaired: `client.json` stays, since it has the token that programs use.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hubbub_client.numbers import LAST_PORT, whole_text
from hubbub_client.transport.discovery import read_client_file
from hubbub_local.daemon import LOCK
from hubbub_shared.platform import files, processes, sockets

if TYPE_CHECKING:
    from hubbub_client.services.admin import Finding, Verdict

CHECK_LIMIT_S = 60.0
CONNECT_LIMIT_S = 1.0
USAGE_STATUS = 2
OTHERS_MODE = 0o077
"""Permissions of a file for anybody but its owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Something that was looked at, and how it can be repaired; None if it cannot, or need not be."""

    finding: Finding
    repair: Repair | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What would be done, in words, and how. `do` raises OSError."""

    what: str
    do: Callable[[], object]


def make_check_result(
    about: str, verdict: Verdict, message: str, advice: str | None = None, repair: Any = None
) -> CheckResult:
    """Return a result about the subject `about`. `repair`, if given, is called to repair what was found.

    With a repair, the advice says what the repair does.
    """
    from hubbub_client.services.admin import Finding  # imported late, since it imports gRPC

    finding = Finding(about=about, verdict=verdict, message=message, advice=advice)
    return CheckResult(finding=finding, repair=Repair(what=advice, do=repair) if repair and advice else None)


def check_data_directory(path: Path) -> Iterator[CheckResult]:
    """Yield what is found of the data directory, and of `client.json` in it. Never raises."""
    about = f"data directory {path}"
    try:
        status = path.stat()
    except FileNotFoundError:
        yield make_check_result(
            about, "warn", "it is not there: no hub has run with it", f"mkdir -p {path}", lambda: _make_directory(path)
        )
        return
    except OSError as error:  # not a name that the system takes, or on the way to it something may not be read
        yield make_check_result(
            about, "warn", f"it cannot be looked at: {error.strerror}", "name another one: --data-dir"
        )
        return
    if not stat.S_ISDIR(status.st_mode):
        yield make_check_result(about, "fail", "there is a file in its place", "name another one: --data-dir")
    elif files.is_of_another_user(status):
        yield make_check_result(about, "warn", "it belongs to another user", "run this as that user")
    elif status.st_mode & OTHERS_MODE:
        yield make_check_result(
            about, "warn", "others may look into it", f"chmod go= {path}", lambda: _make_private(path)
        )
        yield from _check_client_file(path / "client.json")
    else:
        yield make_check_result(about, "ok", "it is there")
        yield from _check_client_file(path / "client.json")


def _make_private(path: Path) -> None:
    """Take away all rights of others to a file."""
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS_MODE)


def _make_directory(path: Path) -> None:
    """Make a directory for its owner alone, and those above it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _check_client_file(path: Path) -> Iterator[CheckResult]:
    """Yield a result about `client.json`: it is there, readable, private, and has an address."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        yield make_check_result(str(path), "warn", "it is not there", "a hub writes it when it starts")
        return
    except OSError as error:
        yield make_check_result(
            str(path), "warn", f"it cannot be looked at: {error.strerror}", f"look at it: ls -l {path}"
        )
        return
    if not (stat.S_ISREG(mode) and os.access(path, os.R_OK)):
        yield make_check_result(str(path), "warn", "it cannot be read", f"look at it: ls -ld {path}")
    elif mode & OTHERS_MODE:
        about = "others may read the token in it"
        yield make_check_result(str(path), "warn", about, f"chmod go= {path}", lambda: _make_private(path))
    elif not read_client_file(path).get("address"):
        yield make_check_result(
            str(path), "warn", "no address stands in it", "start the hub again: it writes a new one"
        )
    else:
        yield make_check_result(str(path), "ok", "only its owner can read it")


def check_orphaned_processes() -> Iterator[CheckResult]:
    """Yield a result for each process that a server of a hub has started, and that outlived the hub."""
    for pid, hub in processes.find_orphaned_servers():
        message = f"a server of a hub that has ended (process {hub}) has started it"
        end = partial(os.kill, pid, signal.SIGTERM)
        yield make_check_result(f"process {pid}", "warn", message, f"kill {pid}", end)


async def check_without_hub(directory: Path) -> AsyncIterator[CheckResult]:
    """Yield why no hub answers: it hangs, something else listens at its address, or its configuration is wrong."""
    address = read_client_file(directory / "client.json").get("address", "")
    holder = _find_holder(directory / LOCK)
    if holder and not address:
        message = f"process {holder} has it open: a hub runs, and no client.json says where"
        yield make_check_result("store", "fail", message, "have it write a new one: hubbub down, then hubbub up -d")
    elif holder:
        advice = f"end it, if it hangs: kill {holder}" if holder.isdigit() else "end it, if it hangs"
        yield make_check_result("store", "fail", f"process {holder} has it open, and does not answer", advice)
    elif address.startswith("unix:"):
        for each in _check_socket(Path(address.removeprefix("unix:"))):
            yield each
    elif address:
        yield _check_port(address)
    if find_spec("hubbubd") is not None:
        async for each in _check_configuration(directory):
            yield each


def _find_holder(lock: Path) -> str:
    """Return the process id that the hub which holds a lock file has written into it.

    `unknown` if nothing is written there; empty if nobody holds the lock, or the file cannot be read.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if files.lock(descriptor, shared=True):  # it could be had, so nobody holds it
            return ""
        return file.read(20).decode(errors="replace").strip() or "unknown"


def _check_socket(path: Path) -> Iterator[CheckResult]:
    """Yield a result about the Unix socket at which the last hub listened; nothing if it is not there."""
    if not path.is_socket():
        return
    try:
        sockets.try_unix_socket(str(path), CONNECT_LIMIT_S)
    except ConnectionRefusedError:
        yield make_check_result(str(path), "warn", "nobody listens at this socket", f"rm {path}", path.unlink)
    except OSError as error:
        yield make_check_result(
            str(path), "warn", f"it cannot be reached: {error.strerror or error}", f"look at it: ls -l {path}"
        )
    else:
        yield make_check_result(str(path), "warn", "something else than a hub listens at this socket", "end that")


def _check_port(address: str) -> CheckResult:
    """Return a result about the TCP address at which the last hub listened."""
    host, _, port = address.removeprefix("http://").removeprefix("https://").rpartition(":")
    about = f"address {address}"
    number = whole_text(port, LAST_PORT) or 0
    try:
        with socket.create_connection((host.strip("[]"), number), timeout=CONNECT_LIMIT_S):
            pass
    except (OSError, UnicodeError):  # also a name that no host can have
        return make_check_result(
            about, "warn", "nothing listens there: the hub has ended", "start it again: hubbub up -d"
        )
    owner = processes.find_listener(number)
    advice = "end that, or start the hub at another address: hubbub up -d --listen 127.0.0.1:0"
    return make_check_result(about, "fail", f"{owner or 'something else than a hub'} listens there", advice)


FINDING_LINE = re.compile(r"(ok|warn|fail) +(.*?): (.*)")


async def _check_configuration(directory: Path) -> AsyncIterator[CheckResult]:
    """Run `hubbubd --check-config`, and yield its findings.

    Of the findings `ok`, only the one about the configuration is yielded.
    """
    command = [sys.executable, "-m", "hubbubd", "--check-config", "--data-dir", str(directory)]
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
    except (OSError, ValueError) as error:
        yield make_check_result("configuration", "warn", f"it cannot be checked: {error}")
        return
    try:
        out, err = await asyncio.wait_for(process.communicate(), CHECK_LIMIT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        yield make_check_result(
            "configuration", "warn", f"its check took more than {CHECK_LIMIT_S:g} s", "hubbubd --check-config"
        )
        return
    if process.returncode == USAGE_STATUS:
        message = err.decode(errors="replace").strip().rpartition("\n")[2].removeprefix("hubbubd: ")
        yield make_check_result("configuration", "fail", message, "correct it, then: hubbubd --check-config")
    for each in _parse_findings(out.decode(errors="replace")):
        yield each


def _parse_findings(text: str) -> Iterator[CheckResult]:
    """Yield the findings in what `hubbubd --check-config` prints: a line each, with advice indented below it.

    A port that is in use is yielded with the program that listens there.
    """
    lines = text.splitlines()
    for line, next_line in zip_longest(lines, lines[1:], fillvalue=""):
        finding = FINDING_LINE.fullmatch(line)
        if finding is None or finding[2] == "secrets" or (finding[1] == "ok" and finding[2] != "configuration"):
            continue  # `check_data_directory` has looked at the secrets
        advice = next_line.strip() if next_line.startswith("      ") else None
        port_in_use = re.fullmatch(r"\S+ \S*:(\d+)", finding[2]) if "in use" in finding[3] else None
        owner = processes.find_listener(whole_text(port_in_use[1], LAST_PORT) or 0) if port_in_use else None
        message = f"{finding[3]}, by {owner.rstrip(',')}" if owner else finding[3]
        yield make_check_result(finding[2], cast("Verdict", finding[1]), message, advice)
