"""What a crowd of servers costs and leaves behind, seen from outside."""

import os
import sys
from pathlib import Path
from typing import Any

import anyio

from .conftest import LIMIT_S, POLL_S

BAD = str(Path(__file__).parents[1] / "peers" / "bad.py")
MARK = "CROWD_MARK"


def bad(mode: str, *arguments: str, **options: Any) -> dict[str, Any]:
    """The configuration of a light server over stdio that misbehaves in one way (`good` does not)."""
    return {"command": sys.executable, "args": ["-I", "-S", BAD, mode, *arguments], **options}


def marked(mark: str) -> list[int]:
    """The living processes that were started with this mark in their environment, or by one that was."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # ended meanwhile, or another user's
    return found


async def nobody_left(mark: str) -> None:
    """Returns when no process with the mark is left; fails after a bounded wait."""
    with anyio.fail_after(LIMIT_S):
        while marked(mark):
            await anyio.sleep(POLL_S)


def parent(pid: int) -> int:
    """The process that started this one; for a server over stdio that is the hub's wrapper around it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def pss_kb(pid: int) -> int:
    """Memory of a process in kB, what it shares counted by its share."""
    return _field(pid, "smaps_rollup", "Pss")


def rss_kb(pid: int) -> int:
    """Resident memory of a process in kB."""
    return _field(pid, "status", "VmRSS")


def _field(pid: int, file: str, name: str) -> int:
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def fds(pid: int) -> int:
    """How many descriptors a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
