"""What `hubbub doctor` looks at on this machine, and what it can repair: the files of a hub that runs here, or would.

A repair changes permissions of the caller's own files, makes a directory, or removes a socket that nobody listens at.
Nothing else is repaired: `client.json` stays, since it has the token that programs use.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hubbub_client.numbers import LAST_PORT, whole_text
from hubbub_client.transport.discovery import content_of

if TYPE_CHECKING:
    from hubbub_client.services.admin import Finding, Verdict

STORE = "hubbub.db"
CHECK_LIMIT_S = 60.0
TRY_S = 1.0
WRONG_USAGE = 2
OTHERS = 0o077
"""Permissions of a file for anybody but its owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Something that was looked at, and how it can be repaired."""

    finding: Finding
    repair: Repair | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What would be done, in words, and how. `do` raises OSError."""

    what: str
    do: Callable[[], object]


def checked(about: str, verdict: Verdict, message: str, advice: str | None = None, do: Any = None) -> Checked:
    """Return what was found. With `do`, which is called to repair it, the advice says what that does."""
    from hubbub_client.services.admin import Finding  # imported late, since it imports gRPC

    finding = Finding(about=about, verdict=verdict, message=message, advice=advice)
    return Checked(finding=finding, repair=Repair(what=advice, do=do) if do and advice else None)


def data_directory(path: Path) -> Iterator[Checked]:
    """Check the data directory and `client.json` in it. Never raises."""
    about = f"data directory {path}"
    try:
        mode = path.stat()
    except FileNotFoundError:
        yield checked(about, "warn", "it is not there: no hub has run with it", f"mkdir -p {path}", lambda: _make(path))
        return
    except OSError as error:  # not a name that the system takes, or on the way to it something may not be read
        yield checked(about, "warn", f"it cannot be looked at: {error.strerror}", "name another one: --data-dir")
        return
    if not stat.S_ISDIR(mode.st_mode):
        yield checked(about, "fail", "there is a file in its place", "name another one: --data-dir")
    elif mode.st_uid != os.geteuid():
        yield checked(about, "warn", "it belongs to another user", "run this as that user")
    elif mode.st_mode & OTHERS:
        yield checked(about, "warn", "others may look into it", f"chmod go= {path}", lambda: _close(path))
        yield from _client_file(path / "client.json")
    else:
        yield checked(about, "ok", "it is there")
        yield from _client_file(path / "client.json")


def _close(path: Path) -> None:
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS)


def _make(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _client_file(path: Path) -> Iterator[Checked]:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        yield checked(str(path), "warn", "it is not there", "a hub writes it when it starts")
        return
    except OSError as error:
        yield checked(str(path), "warn", f"it cannot be looked at: {error.strerror}", f"look at it: ls -l {path}")
        return
    if not (stat.S_ISREG(mode) and os.access(path, os.R_OK)):
        yield checked(str(path), "warn", "it cannot be read", f"look at it: ls -ld {path}")
    elif mode & OTHERS:
        about = "others may read the token in it"
        yield checked(str(path), "warn", about, f"chmod go= {path}", lambda: _close(path))
    elif not content_of(path).get("address"):
        yield checked(str(path), "warn", "no address stands in it", "start the hub again: it writes a new one")
    else:
        yield checked(str(path), "ok", "only its owner can read it")


async def without_hub(directory: Path) -> AsyncIterator[Checked]:
    """Check why no hub answers: whether one has the directory open, what is where it would listen, its settings."""
    address = content_of(directory / "client.json").get("address", "")
    holder = _holder(directory / f"{STORE}.lock")
    if holder and not address:
        message = f"process {holder} has it open: a hub runs, and no client.json says where"
        yield checked("store", "fail", message, "have it write a new one: hubbub down, then hubbub up -d")
    elif holder:
        advice = f"end it, if it hangs: kill {holder}" if holder.isdigit() else "end it, if it hangs"
        yield checked("store", "fail", f"process {holder} has it open, and does not answer", advice)
    elif address.startswith("unix:"):
        for each in _socket(Path(address.removeprefix("unix:"))):
            yield each
    elif address:
        yield _port(address)
    if find_spec("hubbubd") is not None:
        async for each in _configuration(directory):
            yield each


def _holder(lock: Path) -> str:
    """Return the process that has a store open; empty for none. The kernel takes a lock back when a process ends."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
    finally:
        os.close(descriptor)
    return ""


def _socket(path: Path) -> Iterator[Checked]:
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as trying:
        trying.settimeout(TRY_S)
        try:
            trying.connect(str(path))
        except ConnectionRefusedError:
            yield checked(str(path), "warn", "nobody listens at this socket", f"rm {path}", path.unlink)
        except OSError as error:
            yield checked(
                str(path), "warn", f"it cannot be reached: {error.strerror or error}", f"look at it: ls -l {path}"
            )
        else:
            yield checked(str(path), "warn", "something else than a hub listens at this socket", "end that")


def _port(address: str) -> Checked:
    """Check whether something else has taken the place of a hub that has ended."""
    host, _, port = address.removeprefix("http://").removeprefix("https://").rpartition(":")
    about = f"address {address}"
    number = whole_text(port, LAST_PORT) or 0
    try:
        with socket.create_connection((host.strip("[]"), number), timeout=TRY_S):
            pass
    except (OSError, UnicodeError):  # also a name that no host can have
        return checked(about, "warn", "nothing listens there: the hub has ended", "start it again: hubbub up -d")
    owner = listener(number)
    advice = "end that, or start the hub at another address: hubbub up -d --listen 127.0.0.1:0"
    return checked(about, "fail", f"{owner or 'something else than a hub'} listens there", advice)


def listener(port: int) -> str | None:
    """Return which of the caller's processes listens at a TCP port, as `NAME, process N`; None if that is not known."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        with suppress(OSError):  # it has ended, or is another user's
            if any(str(each.readlink()) in sockets for each in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text(errors='replace').strip()}, process {process.name},"
    return None


def _listening(port: int) -> Iterator[str]:
    """Return the inodes of the sockets that listen at a port: proc(5), /proc/net/tcp; 0A is LISTEN."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                cells = line.split()
                if cells[3] == "0A" and int(cells[1].rpartition(":")[2], 16) == port:
                    yield cells[9]


LINE = re.compile(r"(ok|warn|fail) +(.*?): (.*)")


async def _configuration(directory: Path) -> AsyncIterator[Checked]:
    """Let the hub that is installed here say whether it would start; of what is well only its first line is kept."""
    command = [sys.executable, "-m", "hubbubd", "--check-config", "--data-dir", str(directory)]
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
    except (OSError, ValueError) as error:
        yield checked("configuration", "warn", f"it cannot be checked: {error}")
        return
    try:
        out, err = await asyncio.wait_for(process.communicate(), CHECK_LIMIT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        yield checked(
            "configuration", "warn", f"its check took more than {CHECK_LIMIT_S:g} s", "hubbubd --check-config"
        )
        return
    if process.returncode == WRONG_USAGE:
        said = err.decode(errors="replace").strip().rpartition("\n")[2].removeprefix("hubbubd: ")
        yield checked("configuration", "fail", said, "correct it, then: hubbubd --check-config")
    for each in _findings(out.decode(errors="replace")):
        yield each


def _findings(text: str) -> Iterator[Checked]:
    lines = text.splitlines()
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        found = LINE.fullmatch(line)
        if found is None or found[2] == "secrets" or (found[1] == "ok" and found[2] != "configuration"):
            continue  # `data_directory` has looked at the secrets
        advice = following.strip() if following.startswith("      ") else None
        taken = re.fullmatch(r"\S+ \S*:(\d+)", found[2]) if "in use" in found[3] else None
        owner = listener(whole_text(taken[1], LAST_PORT) or 0) if taken else None
        message = f"{found[3]}, by {owner.rstrip(',')}" if owner else found[3]
        yield checked(found[2], cast("Verdict", found[1]), message, advice)
