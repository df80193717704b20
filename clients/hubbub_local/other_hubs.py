"""Other hubs of this user that run on this machine, found by the lock that each holds in its data directory."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hubbub_client.transport.discovery import content_of
from hubbub_local.daemon import LOCK, holder

PROCESSES = Path("/proc")


@dataclass(frozen=True, slots=True)
class RunningHub:
    """A hub that runs: its process, its data directory, and where it listens, if it says so."""

    pid: int
    data_dir: Path
    address: str | None


def hubs() -> Iterator[RunningHub]:
    """Yield the hubs that run; none where the system does not show open files (proc(5), /proc/PID/fd)."""
    for process in PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            for each in (process / "fd").iterdir():
                path = each.readlink()
                pid = holder(path.parent) if path.name == LOCK else None
                if pid is not None and str(pid) == process.name:
                    yield RunningHub(pid, path.parent, content_of(path.parent / "client.json").get("address"))
                    break


def at_address_of(message: str) -> RunningHub | None:
    """Return the hub that listens at an address which a message names (HOST:PORT)."""
    ports = re.findall(r":(\d{1,5})\b", message)
    return next((each for each in hubs() if each.address and each.address.rpartition(":")[2] in ports), None)


def advised(message: str, beside: str) -> str:
    """Return why a hub was not started, with what to do if another one has its address.

    `beside` is the command that starts it at a free one.
    """
    other = at_address_of(message) if "in use" in message else None
    if other is None:
        return message
    to = f"hubbub --data-dir {shlex.quote(str(other.data_dir))}"
    return (
        f"{message}. A Hubbub has that address: process {other.pid}, its data in {other.data_dir}. "
        f"`{to} status` reaches it, `{to} down` ends it; `{beside}` starts one beside it"
    )
