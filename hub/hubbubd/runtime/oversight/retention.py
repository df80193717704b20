"""Retention: ended records are kept for a while, then deleted from memory and erased from the disk.

    a record ends ──> the list of its noun ──> too many, or too old: deleted ──> its bytes on the disk are zeros

Each server has limits of its own, so that a busy one does not push out the history of others, and the hub has limits
over all: of number, of age, and of bytes. Tombstones are limited as well, by count (`table.DELETIONS`) and by age.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import anyio
import structlog

from hubbubd import payload
from hubbubd.config import HubSettings, ServerConfig
from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox.request_states import Delivery, PendingRequest, RequestState
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.core.tasks import Task, TaskRole
from hubbubd.errors import Unavailable
from hubbubd.runtime.oversight.ages import Ages
from hubbubd.runtime.oversight.audit import Audit
from hubbubd.runtime.ownership import UPKEEP, Ownership
from hubbubd.runtime.records import Ledger, Table, delete
from hubbubd.store import StoreStats, StoreUnavailable
from hubbubd.timing.clock import Clock

T = TypeVar("T")

LONGEST_PAUSE_S = 600.0
SHORTEST_PAUSE_S = 1.0
"""Bounds of the pause between rounds of upkeep, in seconds; it is a tenth of the shortest retention age."""

GRACE_S = 1.0
"""Seconds for which an ended record is kept in any case: clients that wait for its end still read it."""

HISTORY_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of one server's ended records of one noun."""

TOTAL_HISTORY_BYTES: Final = 512 * 1024 * 1024
"""The most bytes of all servers' ended records of one noun."""


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """Retention limits of ended records: number, age in seconds, bytes."""

    count: int
    age_s: float
    size: int


class _Ended(NamedTuple):
    """The entry of a record in a list: the server, when the record ended, and its size in bytes."""

    server: str
    at: float
    size: int


class _AgeQueue:
    """Ended records in the order of their end, with their total size."""

    def __init__(self) -> None:
        self.ended: OrderedDict[str, _Ended] = OrderedDict()  # by id of the record
        self._size = 0  # in bytes

    def add(self, record_id: str, ended: _Ended) -> None:
        """Add a record at the end; the caller ensures that no other record has ended later."""
        self.ended[record_id] = ended
        self._size += ended.size

    def drop(self, record_id: str) -> _Ended | None:
        """Remove a record from the queue and return its entry; None if the queue does not have it."""
        if (ended := self.ended.pop(record_id, None)) is not None:
            self._size -= ended.size
        return ended

    def exceeds(self, limits: RetentionLimits) -> bool:
        """Return whether the limit of number or of bytes is exceeded; a single record may have any size."""
        return len(self.ended) > limits.count or (self._size > limits.size and len(self.ended) > 1)

    def must_drop_oldest(self, limits: RetentionLimits, now: float) -> bool:
        """Return whether the record that ended first is to be deleted at `now`: it is too old, or a limit is exceeded.

        No record is deleted within GRACE_S after its end.
        """
        if not self.ended:
            return False
        age_s = now - next(iter(self.ended.values())).at
        return age_s >= GRACE_S and (age_s > limits.age_s or self.exceeds(limits))


@dataclass(kw_only=True, eq=False, repr=False)
class RetentionList(Generic[T]):
    """The ended records of a table in order of their end, in all and per server. Adding and removing are O(1).

    `ended_at` returns when a record ended, None before its end; `size_of` its bytes; `total_limits` the limits over
    all servers; `server_limits` those of one server.
    """

    table: Table[T]
    ended_at: Callable[[T], float | None]
    size_of: Callable[[T], int]
    total_limits: Callable[[], RetentionLimits]
    server_limits: Callable[[str], RetentionLimits]
    now: Callable[[], float]

    def __post_init__(self) -> None:
        self._all = _AgeQueue()
        self._by_server: dict[str, _AgeQueue] = {}
        self._being_deleted: set[str] = set()
        """Ids that `remove_excess` has returned, until their deletion is durable: `_add` ignores them."""

    def load(self) -> None:
        """Take all ended records of the table into the list, in the order of their end; may be repeated."""
        self._all = _AgeQueue()
        self._by_server.clear()
        ended = ((self.ended_at(record), record) for record in self.table)
        for _, record in sorted((e for e in ended if e[0] is not None), key=lambda e: cast("float", e[0])):
            self._add(record)

    def newest_end(self) -> float:
        """Return the latest end of an ended record of the table; 0 if there is none."""
        return max((at for record in self.table if (at := self.ended_at(record)) is not None), default=0.0)

    def add_if_ended(self, record: T) -> bool:
        """Add a record to the list if it has ended and is new.

        Return whether it was added and a limit of number or bytes is exceeded now.
        """
        server_queue = self._add(record)
        if server_queue is None:
            return False
        limits = self.server_limits(cast("Any", record).server)
        return server_queue.exceeds(limits) or self._all.exceeds(self.total_limits())

    def _add(self, record: T) -> _AgeQueue | None:
        """Add a record if it has ended and is new; return the queue of its server, or None if it was not added."""
        ended_record = cast("Any", record)
        at = self.ended_at(record)
        if at is None or ended_record.id in self._all.ended or ended_record.id in self._being_deleted:
            return None
        # Not later than now: a stamp of a clock that was ahead must not protect the records behind it.
        ended = _Ended(ended_record.server, min(at, self.now()), self.size_of(record))
        server_queue = self._by_server.setdefault(ended_record.server, _AgeQueue())
        for queue in (server_queue, self._all):
            queue.add(ended_record.id, ended)
        return server_queue

    def drop(self, record_id: str) -> None:
        """Forget a record whose deletion is durable, by this member or another."""
        self._being_deleted.discard(record_id)
        self._remove(record_id)

    def _remove(self, record_id: str) -> None:
        """Remove a record from both queues, if it is in them."""
        ended = self._all.drop(record_id)
        if ended is not None and (server_queue := self._by_server.get(ended.server)) is not None:
            server_queue.drop(record_id)
            if not server_queue.ended:
                del self._by_server[ended.server]

    def remove_excess(self, now: float) -> list[str]:
        """Remove from the list the records beyond number or bytes, or past their age at `now`; return their ids.

        The caller has to delete these records.
        """
        removed_ids: list[str] = []
        for server in list(self._by_server):
            limits = self.server_limits(server)
            while (server_queue := self._by_server.get(server)) and server_queue.must_drop_oldest(limits, now):
                removed_ids.append(next(iter(server_queue.ended)))
                self._remove(removed_ids[-1])
        total = self.total_limits()
        while self._all.must_drop_oldest(total, now):
            removed_ids.append(next(iter(self._all.ended)))
            self._remove(removed_ids[-1])
        self._being_deleted.update(removed_ids)
        return removed_ids

    @property
    def has_excess(self) -> bool:
        """Whether a limit of number or bytes is exceeded."""
        return self._all.exceeds(self.total_limits()) or any(
            queue.exceeds(self.server_limits(server)) for server, queue in self._by_server.items()
        )


HistoryLimits = Callable[[HubSettings | ServerConfig], tuple[int, float | None]]
"""Returns how many ended records of one noun settings or a server's configuration allow, and to which age (seconds).

The age is None if there is none: then for a server the age of the hub holds, and for the hub no limit.
"""


@dataclass(eq=False, repr=False)
class Retention:
    """Deletes ended records beyond the limits, and keeps the store small.

    In a fleet the member that owns UPKEEP deletes; the others only follow.
    """

    ledger: Ledger
    clock: Clock
    settings: HubSettings
    _: KW_ONLY
    servers: Table[ServerRecord]
    calls: InitVar[Table[Call]]
    requests: InitVar[Table[PendingRequest]]
    tasks: InitVar[Table[Task]]
    ages: Ages
    audit: Audit
    ownership: Ownership

    def __post_init__(self, calls: Table[Call], requests: Table[PendingRequest], tasks: Table[Task]) -> None:
        self._has_excess = anyio.Event()  # wakes `run`
        self._round_lock = anyio.Lock()
        self._calls = self._make_list(
            calls,
            lambda config: (config.call_history_count, config.call_history_age_s),
            lambda call: call.completed_at,
            _call_size,
        )
        self._requests = self._make_list(
            requests,
            lambda config: (config.request_history_count, config.request_history_age_s),
            _settled_at,
            _request_size,
        )
        self._tasks = self._make_list(
            tasks,
            lambda config: (config.task_history_count, config.task_history_age_s),
            self._task_ended_at,
            _task_size,
        )
        self._histories: tuple[RetentionList[Any], ...] = (self._calls, self._requests, self._tasks)

    def recover(self) -> float:
        """Load the ended records, and follow the tables and the clock from now on.

        Return by how many seconds deadlines set before the hub's start are to be moved: the step of the clock while no
        hub ran, if nobody confirms that this time has passed; else 0.
        """
        moved_s = self.ages.notice_leaps(lambda: max(history.newest_end() for history in self._histories))
        for history in self._histories:
            history.table.follow(partial(self._follow_change, history))
        self.ages.on_redated(self._load)
        self._load()
        self.clock.on_jump(lambda _: self.ages.notice_leaps())
        return moved_s

    def _load(self) -> None:
        """Load ended records and audit entries in the order of their stamps, corrected for leaps of the clock.

        Called again when an era of the clock (a span between leaps) begins or ends, as that redates old stamps.
        """
        for history in self._histories:
            history.load()
        self.audit.load(self.ages.correct_stamp)

    def adopt(self, settings: HubSettings) -> None:
        """Apply changed limits, and wake `run` to delete what exceeds them."""
        self.settings = settings
        self._has_excess.set()

    async def run(self) -> None:
        """Run rounds of upkeep (deletion by limits, compaction of the store) until cancelled.

        Between the rounds, records that exceed a limit are deleted GRACE_S later. A failed round is only logged: the
        next one catches up. A member that does not own UPKEEP does nothing.
        """
        while True:
            try:
                if self.ownership.owns(UPKEEP):
                    await self.run_round()
            except (Unavailable, StoreUnavailable) as exc:
                log.warning("store upkeep failed; retried", error=str(exc))
            with anyio.move_on_after(self._pause_s()):
                while True:
                    await self._has_excess.wait()
                    await anyio.sleep(GRACE_S)
                    self._has_excess = anyio.Event()
                    if self.ownership.owns(UPKEEP):
                        self.prune()

    def prune(self) -> int:
        """Delete records and audit entries that are too old or too many, write-behind, and return their number."""
        self.ages.notice_leaps()  # first: a leap of the clock must not make records older
        count, now = self.audit.prune(), self.clock.now()
        for history in self._histories:
            excess_ids = history.remove_excess(now)
            count += len(excess_ids)
            for record_id in excess_ids:
                self.ledger.change_later(history.table, record_id, delete)
        if any(history.has_excess for history in self._histories):  # records within GRACE_S: try again after that
            self._has_excess.set()
        return count

    async def run_round(self) -> int:
        """Delete records that are too old or too many, and have the store compact and erase them from the disk.

        Also note the time for `Ages`, and forget old tombstones. Return the number of deleted records. Raises
        Unavailable and StoreUnavailable; then the next round catches up.
        """
        async with self._round_lock:
            count = self.prune()
            tombstones_s = self.settings.deletion_history_age_s
            self.ages.note_progress(tombstones_s)
            self.ages.forget_eras_older_than(max(self._all_ages()))
            forgotten = self.ages.newest_forgotten_revision(tombstones_s)
            if not await self.ledger.flush():
                raise Unavailable("the store cannot be written", reason="STORE_UNAVAILABLE")
            await self.ledger.compact(forgotten)
            await self.ledger.store.reclaim()
        return count

    async def compact(self) -> tuple[StoreStats, StoreStats, int]:
        """Run a round of upkeep; return the store's stats before and after, and the number of deleted records.

        Raises Unavailable and StoreUnavailable.
        """
        before = await self.ledger.store.stats()
        count = await self.run_round()
        return before, await self.ledger.store.stats(), count

    def _make_list(
        self, table: Table[T], limits: HistoryLimits, ended_at: Callable[[T], float | None], size_of: Callable[[T], int]
    ) -> RetentionList[T]:
        """Return the retention list of a table, with the limits of the hub and of each server as they are at any time.

        `ended_at` returns the stamp of a record's end, None before; `size_of` returns its bytes.
        """

        def total_limits(size: int = TOTAL_HISTORY_BYTES) -> RetentionLimits:
            """Return the limits over all servers, with `size` bytes."""
            count, age_s = limits(self.settings)
            return RetentionLimits(count, math.inf if age_s is None else age_s, size)

        def server_limits(server: str) -> RetentionLimits:
            """Return the limits of one server; the hub's number and age if it was removed."""
            record = self.servers.record(server)
            if record is None:
                return total_limits(HISTORY_BYTES)
            count, age_s = limits(record.config)
            return RetentionLimits(count, total_limits().age_s if age_s is None else age_s, HISTORY_BYTES)

        def corrected_end(record: T) -> float | None:
            """Return when a record ended, corrected for leaps of the clock; None before its end."""
            at = ended_at(record)
            return at if at is None or not self.ages.has_leaps else self.ages.correct_stamp(at)

        return RetentionList(
            table=table,
            ended_at=corrected_end,
            size_of=size_of,
            total_limits=total_limits,
            server_limits=server_limits,
            now=self.clock.now,
        )

    def _follow_change(self, history: RetentionList[Any], before: Any, after: Any) -> None:
        """Update a list after a durable change of a record, from `before` (None: new) to `after` (None: deleted).

        If the record belongs to a task, update the list of tasks as well.
        """
        if after is None:
            history.drop(before.id)
        elif history.add_if_ended(after):
            self._has_excess.set()
        # A task counts as ended once its call has ended, and its pending requests are closed with answers delivered.
        if history is not self._tasks and (task_id := (after or before).task_id):
            task = self._tasks.table.record(task_id)
            if task is not None and self._tasks.add_if_ended(task):
                self._has_excess.set()

    def _task_ended_at(self, task: Task) -> float | None:
        """Return when a task ended; None before, and while its call or one of its pending requests needs it."""
        if not task.status.ended:
            return None
        if task.role is TaskRole.CLIENT:
            call = self._calls.table.record(task.call_id or "")
            is_needed = call is not None and not call.state.ended
        else:
            questions = filter(None, map(self._requests.table.record, task.pending_ids))
            is_needed = any(_settled_at(request) is None for request in questions)
        return None if is_needed else task.last_updated_at

    def _pause_s(self) -> float:
        """Return the seconds between two rounds: a tenth of the shortest retention age, within bounds."""
        shortest = min(self._all_ages()) / 10
        return min(max(shortest, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)

    def _all_ages(self) -> Iterator[float]:
        """Yield all retention ages that are set, of the hub and of servers, in seconds."""
        configs: list[HubSettings | ServerConfig] = [self.settings, *(record.config for record in self.servers)]
        for each in configs:
            yield from filter(None, (each.call_history_age_s, each.request_history_age_s, each.task_history_age_s))
        yield from (self.settings.deletion_history_age_s, self.settings.audit_history_age_s)


def _settled_at(request: PendingRequest) -> float | None:
    """Return when a request was closed; None while it is open, or its answer is being delivered to the server."""
    if request.state is RequestState.OPEN or request.delivery is Delivery.PENDING:
        return None
    # A closed record without the time of its end counts from its beginning.
    return request.created_at if request.closed_at is None else request.closed_at


def _call_size(call: Call) -> int:
    """Return the bytes of a call that count: params, result, and details of its fault."""
    details = call.fault.details if call.fault is not None else None
    return len(call.params) + len(call.result or b"") + (len(payload.dumps(dict(details))) if details else 0)


def _request_size(request: PendingRequest) -> int:
    """Return the bytes of a pending request that count: its own and those of its answer."""
    return len(request.request) + (len(request.answer.payload or b"") if request.answer is not None else 0)


def _task_size(task: Task) -> int:
    """Return the bytes of a task that count: result, error and status message."""
    return len(task.result or b"") + len(task.error or b"") + len(task.status_message or "")
