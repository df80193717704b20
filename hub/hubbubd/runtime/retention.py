"""Retention: what has ended is kept for a while, and then is gone from memory and from the disk.

    a record ends ──> the shelf of its noun ──> too many, or too old: deleted ──> its bytes on the disk are zeros

Each server has limits of its own, so that a busy one does not push out what others have left, and the hub has limits
over all. Deletions are remembered as well, by count (`ledger.DELETIONS`) and by age.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

import anyio
import structlog

from hubbubd.clock import Clock
from hubbubd.config import HubSettings, ServerConfig
from hubbubd.core.calls import Call
from hubbubd.core.inbox import Delivery, PendingRequest, RequestState
from hubbubd.core.server import ServerRecord
from hubbubd.core.tasks import Task, TaskRole
from hubbubd.errors import Unavailable
from hubbubd.runtime.audit import Audit
from hubbubd.runtime.ledger import Change, Ledger, Table
from hubbubd.store import StoreStats, StoreUnavailable

T = TypeVar("T")

GRACE_S = 1.0
"""What has ended is there for so long at least: whoever waits for its end still reads it."""

LONGEST_PAUSE_S = 600.0
SHORTEST_PAUSE_S = 1.0
"""Between which bounds a tenth of the shortest age is the pause between two rounds of upkeep."""

MILESTONES = 100
"""How many of them divide the age of deletions; one is forgotten that much late at most."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many records that have ended are kept, and for how long."""

    count: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What the hub remembers for its upkeep: (revision, time) pairs, oldest first, which say how old a deletion is."""

    milestones: tuple[tuple[int, float], ...] = ()


class Shelf(Generic[T]):
    """The records of a table that have ended, in the order in which they did. Adding and taking one costs the same,
    however many there are."""

    def __init__(
        self,
        table: Table[T],
        ended_at: Callable[[T], float | None],
        total: Callable[[], Limits],
        own: Callable[[str], Limits],
    ) -> None:
        self.table = table
        self._ended_at = ended_at
        self._total = total
        self._own = own
        self._all: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._by_server: dict[str, OrderedDict[str, float]] = {}

    def start(self) -> None:
        """Takes up what the store remembers."""
        ended = ((self._ended_at(record), record) for record in self.table)
        for _, record in sorted((e for e in ended if e[0] is not None), key=lambda e: cast("float", e[0])):
            self.see(record)

    def see(self, record: T) -> bool:
        """Looks whether a record has ended by now; True when there are too many then."""
        known = cast("Any", record)
        at = self._ended_at(record)
        if at is None or known.id in self._all:
            return False
        self._all[known.id] = known.server, at
        own = self._by_server.setdefault(known.server, OrderedDict())
        own[known.id] = at
        return len(own) > self._own(known.server).count or len(self._all) > self._total().count

    def drop(self, record_id: str) -> None:
        """Forgets a record that is gone."""
        server, _ = self._all.pop(record_id, ("", 0.0))
        if (own := self._by_server.get(server)) is not None:
            own.pop(record_id, None)
            if not own:
                del self._by_server[server]

    def take(self, now: float) -> list[str]:
        """Takes off what is to be deleted now."""
        taken: list[str] = []
        for server in list(self._by_server):
            limits = self._own(server)
            while (own := self._by_server.get(server)) and self._goes(len(own), next(iter(own.values())), limits, now):
                taken.append(next(iter(own)))
                self.drop(taken[-1])
        while self._all and self._goes(len(self._all), next(iter(self._all.values()))[1], self._total(), now):
            taken.append(next(iter(self._all)))
            self.drop(taken[-1])
        return taken

    def _goes(self, count: int, oldest_at: float, limits: Limits, now: float) -> bool:
        age_s = now - oldest_at
        return age_s >= GRACE_S and (age_s > limits.age_s or count > limits.count)

    @property
    def too_full(self) -> bool:
        """Whether there are more than a limit allows."""
        return len(self._all) > self._total().count or any(
            len(own) > self._own(server).count for server, own in self._by_server.items()
        )


class Retention:
    """Deletes what has ended and is too old or too much, and keeps the store small."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        settings: HubSettings,
        *,
        servers: Table[ServerRecord],
        calls: Table[Call],
        requests: Table[PendingRequest],
        tasks: Table[Task],
        upkeep: Table[Upkeep],
        audit: Audit,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._settings = settings
        self._servers = servers
        self._upkeep = upkeep
        self._audit = audit
        self._too_full = anyio.Event()
        self._at_work = anyio.Lock()
        self._calls = self._shelf(calls, "call", lambda call: call.completed_at)
        self._requests = self._shelf(requests, "request", _settled_at)
        self._tasks = self._shelf(tasks, "task", self._task_ended_at)
        self._shelves: tuple[Shelf[Any], ...] = (self._calls, self._requests, self._tasks)

    def start(self) -> None:
        """Takes up what the store remembers, and follows the tables from then on."""
        for shelf in self._shelves:
            shelf.start()
            shelf.table.follow(partial(self._follow, shelf))

    def adopt(self, settings: HubSettings) -> None:
        """Keeps these limits from now on."""
        self._settings = settings
        self._too_full.set()

    async def run(self) -> None:
        """Keeps the limits for as long as the hub runs."""
        while True:
            try:
                await self.keep()
            except (Unavailable, StoreUnavailable) as exc:
                log.warning("the store cannot forget what was deleted", error=str(exc))
            with anyio.move_on_after(self._pause_s()):
                while True:
                    await self._too_full.wait()
                    await anyio.sleep(GRACE_S)
                    self._too_full = anyio.Event()
                    self.prune()

    def prune(self) -> int:
        """Deletes what is too old or too much; how many records. It follows a moment later on the disk."""
        now, count = self._clock.now(), self._audit.prune()
        for shelf in self._shelves:
            gone = shelf.take(now)
            count += len(gone)
            for record_id in gone:
                self._ledger.later(Change(shelf.table, record_id, None))
        if any(shelf.too_full for shelf in self._shelves):  # of what has only just ended
            self._too_full.set()
        return count

    async def keep(self) -> int:
        """A round of upkeep: what is too old or too much is gone when it returns, overwritten on the disk too.

        Returns how many records were deleted. Raises Unavailable and StoreUnavailable; then it follows later.
        """
        async with self._at_work:
            count = self.prune()
            self._set_milestone()
            if not await self._ledger.flush():
                raise Unavailable("the store cannot be written", reason="STORE_UNAVAILABLE")
            await self._ledger.compact(self._forgotten())
            await self._ledger.store.reclaim()
        return count

    async def compact(self) -> tuple[StoreStats, StoreStats, int]:
        """`keep`, with the numbers of the store before and after it."""
        before = await self._ledger.store.stats()
        count = await self.keep()
        return before, await self._ledger.store.stats(), count

    def _shelf(self, table: Table[T], noun: str, ended_at: Callable[[T], float | None]) -> Shelf[T]:
        """Limits are the settings NOUN_history_count and NOUN_history_age_s of the hub and of each server."""
        count, age_s = f"{noun}_history_count", f"{noun}_history_age_s"

        def total() -> Limits:
            return Limits(getattr(self._settings, count), getattr(self._settings, age_s))

        def own(server: str) -> Limits:
            record = self._servers.record(server)
            if record is None:
                return total()
            own_age_s: float | None = getattr(record.config, age_s)
            return Limits(getattr(record.config, count), total().age_s if own_age_s is None else own_age_s)

        return Shelf(table, ended_at, total, own)

    def _follow(self, shelf: Shelf[Any], before: Any, after: Any) -> None:
        if after is None:
            shelf.drop(before.id)
        elif shelf.see(after):
            self._too_full.set()
        # A task is of use for as long as its call or its question is.
        if shelf is not self._tasks and (task_id := (after or before).task_id):
            task = self._tasks.table.record(task_id)
            if task is not None and self._tasks.see(task):
                self._too_full.set()

    def _task_ended_at(self, task: Task) -> float | None:
        if not task.status.ended:
            return None
        if task.role is TaskRole.CLIENT:
            call = self._calls.table.record(task.call_id or "")
            needed = call is not None and not call.state.ended
        else:
            questions = filter(None, map(self._requests.table.record, task.pending_ids))
            needed = any(_settled_at(request) is None for request in questions)
        return None if needed else task.last_updated_at

    def _set_milestone(self) -> None:
        milestones = self._known().milestones
        now, revision = self._clock.now(), self._ledger.store.revision
        passed, at = milestones[-1] if milestones else (-1, 0.0)
        # Writing a milestone takes a revision, too: by itself it is nothing new.
        if revision > passed + 1 and now - at >= self._settings.deletion_history_age_s / MILESTONES:
            later = (*milestones, (revision, now))
            forgotten = self._forgotten()
            kept = tuple(milestone for milestone in later if milestone[0] >= forgotten)
            self._ledger.later(Change(self._upkeep, "upkeep", replace(self._known(), milestones=kept)))

    def _forgotten(self) -> int:
        """The newest revision that was reached before the age of deletions; 0 when none is known."""
        oldest = self._clock.now() - self._settings.deletion_history_age_s
        return max((revision for revision, at in self._known().milestones if at <= oldest), default=0)

    def _known(self) -> Upkeep:
        return self._upkeep.record("upkeep") or Upkeep()

    def _pause_s(self) -> float:
        shortest = min(self._ages()) / 10
        return min(max(shortest, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)

    def _ages(self) -> Iterator[float]:
        limited: list[HubSettings | ServerConfig] = [self._settings, *(record.config for record in self._servers)]
        for each in limited:
            yield from filter(None, (each.call_history_age_s, each.request_history_age_s, each.task_history_age_s))
        yield from (self._settings.deletion_history_age_s, self._settings.audit_history_age_s)


def _settled_at(request: PendingRequest) -> float | None:
    """When a request was closed; None while it is open or its answer is on its way."""
    if request.state is RequestState.OPEN or request.delivery is Delivery.PENDING:
        return None
    return request.created_at if request.closed_at is None else request.closed_at
