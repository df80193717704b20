"""What is seen of a fleet at one moment: memory, files, queues and backlogs of its members, rows of its database."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from time import monotonic
from urllib.request import urlopen

from anyio import to_thread

import hubbub_client

from ..e2e.conftest import descendants
from .members import Member, Members
from .torment import Torment

MIB = 1 << 20
KIB = 1 << 10
SCRAPE_S = 10.0

ROWS = """
SELECT split_part(key, '/', 1), count(value), count(*) - count(value) FROM hubbub.entries GROUP BY 1
UNION ALL SELECT '*', count(*), pg_database_size(current_database()) FROM hubbub.commits
"""
"""Records and tombstones of each noun; of the commits that are kept, with the bytes of the database."""


@dataclass(frozen=True, slots=True)
class OfMember:
    """One member; the numbers after its files are those of its metrics."""

    rss_mib: float
    files: int
    queued: int
    open: int
    oldest_s: float
    """For how long the oldest open question has waited."""
    watchers: int
    backlog: int
    """Records that the slowest watcher has yet to take."""
    dropped: int
    """Watches that were ended because they were read too slowly."""
    lag: int
    """Revisions that another member has read and this one has not."""
    late_s: float
    """How late the loop was at most."""
    fenced: int


@dataclass(frozen=True, slots=True)
class Look:
    """A fleet. A member that does not run, or not yet, is missing."""

    at_s: float
    cpu_s: float
    """Processor time of everything together, the load's too."""
    members: dict[str, OfMember]
    rows: dict[str, int]
    """Records in the database, by noun."""
    tombstones: int
    commits: int
    store_mib: float
    database_mib: float
    """Memory that PostgreSQL's processes have each for themselves."""
    longest_queue: int
    on_the_wire: int
    open: int

    @property
    def entries(self) -> int:
        """Rows of the table of records."""
        return sum(self.rows.values()) + self.tombstones


@dataclass(frozen=True, slots=True)
class Observer:
    """Looks at a fleet, over the API of the member that `asked` is connected to."""

    torment: Torment
    asked: hubbub_client.Hub
    begun: float

    async def look(self) -> Look:
        """What there is now."""
        rows = await self.torment.history.ask(ROWS)
        database = self.database
        counts = {noun: count for noun, count, _ in rows if noun != "*"}
        ((commits, size),) = [(count, size) for noun, count, size in rows if noun == "*"]
        queues = [server.queue for server in await self.asked.servers.list() if server.queue]
        return Look(
            at_s=monotonic() - self.begun,
            cpu_s=_cpu_s(os.getpid()) + _cpu_s(database),
            members=await self._members(self.torment.fleet),
            rows=counts,
            tombstones=sum(gone for noun, _, gone in rows if noun != "*"),
            commits=commits,
            store_mib=size / MIB,
            database_mib=_own_mib(database),
            longest_queue=max(queue.queued for queue in queues),
            on_the_wire=max(queue.in_progress for queue in queues),
            open=len(await self.asked.inbox.list(states=["open"])),
        )

    @property
    def database(self) -> int:
        """The first of the database's processes, below which are the others."""
        data = self.torment.databases.primary.data
        assert data is not None
        return int((data / "postmaster.pid").read_text().split()[0])

    async def _members(self, fleet: Members) -> dict[str, OfMember]:
        found = {name: await _of(member) for name, member in fleet.all.items()}
        return {name: there for name, there in found.items() if there}


async def _of(member: Member) -> OfMember | None:
    if not member.up or member.process is None:
        return None
    process = Path(f"/proc/{member.process.pid}")
    try:
        scraped = await to_thread.run_sync(_scrape, f"http://{member.metrics}/metrics")
        rss_mib, files = _status_kib(process, "VmRSS") / KIB, sum(1 for _ in (process / "fd").iterdir())
        return _member(rss_mib, files, scraped)
    except (OSError, HTTPException, StopIteration, KeyError):  # it ends, or it has just begun
        return None


def _member(rss_mib: float, files: int, scraped: Mapping[str, float]) -> OfMember:
    return OfMember(
        rss_mib=rss_mib,
        files=files,
        queued=int(scraped["hubbub_queue_depth"]),
        open=int(scraped["hubbub_requests_pending"]),
        oldest_s=scraped["hubbub_requests_oldest_age_seconds"],
        watchers=int(scraped["hubbub_watchers"]),
        backlog=int(scraped["hubbub_watchers_lag"]),
        dropped=int(scraped["hubbub_watchers_dropped_total"]),
        lag=int(scraped["hubbub_fleet_feed_lag"]),
        late_s=scraped["hubbub_loop_lag_seconds"],
        fenced=int(scraped.get("hubbub_fleet_fenced_total", 0)),
    )


def _scrape(url: str) -> dict[str, float]:
    with urlopen(url, timeout=SCRAPE_S) as response:
        return sums(response.read().decode().splitlines())


def sums(lines: Iterable[str]) -> dict[str, float]:
    """The metrics of an exposition, each summed over its series."""
    found = defaultdict[str, float](float)
    for line in lines:
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name.partition("{")[0]] += float(value)
    return dict(found)


def _own_mib(root: int) -> float:
    """Memory that a process and all below it have each for themselves."""
    total = 0
    for pid in (root, *descendants(root)):
        try:
            total += _status_kib(Path(f"/proc/{pid}"), "RssAnon")
        except (OSError, StopIteration):  # its connection has ended
            continue
    return total / KIB


def _cpu_s(root: int) -> float:
    """Processor time of a process and of all below it, those that have ended too."""
    ticks = 0
    for pid in (root, *descendants(root)):
        try:
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:  # it has ended
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def _status_kib(process: Path, name: str) -> int:
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
