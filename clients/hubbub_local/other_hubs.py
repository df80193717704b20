"""Other hubs of this user that run on this machine, found by the lock that each holds in its data directory."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hubbub_client.transport.discovery import read_client_file
from hubbub_local.daemon import LOCK, find_hub_pid
from hubbub_shared.platform import processes


@dataclass(frozen=True, slots=True)
class RunningHub:
    """A hub that runs: its process, its data directory, and where it listens, if it says so."""

    pid: int
    data_dir: Path
    address: str | None


def find_hubs() -> Iterator[RunningHub]:
    """Yield the hubs that run; none where the system does not show open files."""
    for pid, path in processes.find_open_files(LOCK):
        with suppress(OSError):  # it has ended
            if find_hub_pid(path.parent) == pid:
                yield RunningHub(pid, path.parent, read_client_file(path.parent / "client.json").get("address"))


def find_hub_at_address(message: str) -> RunningHub | None:
    """Return the hub that listens at a port which a message names (HOST:PORT); None if none does."""
    ports = re.findall(r":(\d{1,5})\b", message)
    return next((each for each in find_hubs() if each.address and each.address.rpartition(":")[2] in ports), None)


def add_advice(message: str, beside_command: str) -> str:
    """Return a message about a hub that was not started, with advice if another hub has its address.

    `beside_command` is the command that starts it at a free address.
    """
    # A hub whose address is taken ends with such a message.
    other = find_hub_at_address(message) if "in use" in message else None
    if other is None:
        return message
    command_start = f"hubbub --data-dir {shlex.quote(str(other.data_dir))}"
    return (
        f"{message}. A Hubbub has that address: process {other.pid}, its data in {other.data_dir}. "
        f"`{command_start} status` reaches it, `{command_start} down` ends it; `{beside_command}` starts one beside it"
    )
