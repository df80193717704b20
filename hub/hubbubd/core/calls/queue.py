"""The order in which one server's calls get their turn: a bounded FIFO (backpressure) with a concurrency limit.

WAITING ──> IN_FLIGHT <──> PARKED        and from each of them: forgotten, or ASIDE
   ^            │             │
   └────────────┴─────────────┘          sent again: at the head
"""

from collections import Counter, OrderedDict
from enum import Enum, auto
from typing import Final

from hubbubd.errors import ResourceExhausted

MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024
"""The most bytes that the params of one server's waiting calls may take. A single call may take more."""


class Slot(Enum):
    """Where a call of a queue is."""

    WAITING = auto()
    """It waits for its turn."""
    IN_FLIGHT = auto()
    """It occupies one of the `max_in_flight` slots."""
    PARKED = auto()
    """A question of its server is open: it occupies no slot."""
    ASIDE = auto()
    """It is a task at its server, and needs no slot any more."""

    __hash__ = object.__hash__  # quicker: the one of Enum is not written in C, and hashes the name


class CallQueue:
    """FIFO of call ids with `max_in_flight` slots, bounded by number and bytes.

    A parked call that continues on the wire takes a slot even beyond the limit, as the server is working on it already.

    With `one_question_at_a_time` there is one slot, and a parked call blocks the others, so that only one call can be
    the cause of what the server asks.
    """

    def __init__(self, max_in_flight: int, max_queued: int, *, one_question_at_a_time: bool = False) -> None:
        """Begin without calls; `set_limits` describes the limits."""
        self._slots: dict[str, Slot] = {}
        self._waiting: OrderedDict[str, int] = OrderedDict()
        """The calls that wait, next one first, with the bytes of their params."""
        self._bytes = 0  # of the params of the waiting calls
        self._counts = Counter[Slot]()
        self.set_limits(max_in_flight, max_queued, one_question_at_a_time=one_question_at_a_time)

    def set_limits(self, max_in_flight: int, max_queued: int, *, one_question_at_a_time: bool) -> None:
        """Set how many calls may be on the wire at once and how many may wait; calls already admitted stay.

        With `one_question_at_a_time` one call is on the wire, and none while a question of its server is open.
        """
        self._max_in_flight = 1 if one_question_at_a_time else max_in_flight
        self._max_queued = max_queued
        self._one_question_at_a_time = one_question_at_a_time

    def slot(self, call_id: str) -> Slot | None:
        """Return where a call is; None for an unknown one."""
        return self._slots.get(call_id)

    def count(self, *slots: Slot) -> int:
        """Return how many calls are in these slots."""
        return sum(self._counts[slot] for slot in slots)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The ids of the waiting calls, next one first."""
        return tuple(self._waiting)

    def add(self, call_id: str, size: int = 0) -> None:
        """Append a new call with params of `size` bytes. Raises ResourceExhausted (QUEUE_FULL)."""
        if len(self._waiting) >= self._max_queued:
            raise ResourceExhausted(
                f"{self._max_queued} calls are queued already; wait, or clear the queue", reason="QUEUE_FULL"
            )
        if self._waiting and self._bytes + size > MAX_QUEUED_BYTES:
            raise ResourceExhausted(
                f"the queued calls take {self._bytes} of {MAX_QUEUED_BYTES} bytes already; wait, or clear the queue",
                reason="QUEUE_FULL",
            )
        self.add_resumed(call_id, size)

    def add_resumed(self, call_id: str, size: int) -> None:
        """Append a call that was admitted before a restart; no limit applies."""
        self._waiting[call_id] = size
        self._bytes += size
        self._move(call_id, Slot.WAITING)

    def add_first(self, call_id: str) -> None:
        """Put a call that has been sent before at the head of the waiting calls; no limit applies."""
        self.remove(call_id)
        self.add_resumed(call_id, 0)  # its bytes were counted when it was admitted
        self._waiting.move_to_end(call_id, last=False)

    def start_next(self) -> str | None:
        """Give a free slot to the next call and return its id; None without a slot or a call."""
        if not self._waiting or self._counts[Slot.IN_FLIGHT] >= self._max_in_flight:
            return None
        if self._one_question_at_a_time and self._counts[Slot.PARKED]:
            return None  # only the parked call can be the cause of what the server asks
        call_id, size = self._waiting.popitem(last=False)
        self._bytes -= size
        self._move(call_id, Slot.IN_FLIGHT)
        return call_id

    def park(self, call_id: str) -> None:
        """Free a call's slot while a question of its server is open. Raises KeyError if it has none."""
        if self._slots.get(call_id) is not Slot.IN_FLIGHT:
            raise KeyError(call_id)
        self._move(call_id, Slot.PARKED)

    def unpark(self, call_id: str) -> None:
        """Put a parked call back on the wire, beyond the limit if need be. Raises KeyError if it is not parked."""
        if self._slots.get(call_id) is not Slot.PARKED:
            raise KeyError(call_id)
        self._move(call_id, Slot.IN_FLIGHT)

    def set_aside(self, call_id: str) -> None:
        """Free a call's slot for good: it has become a task at the server."""
        self.remove(call_id)
        self._move(call_id, Slot.ASIDE)

    def remove(self, call_id: str) -> None:
        """Forget a call in whatever slot; unknown ids are ignored."""
        self._bytes -= self._waiting.pop(call_id, 0)
        if (slot := self._slots.pop(call_id, None)) is not None:
            self._counts[slot] -= 1

    def _move(self, call_id: str, slot: Slot) -> None:
        """Put a call into a slot, and count it there."""
        if (slot_before := self._slots.get(call_id)) is not None:
            self._counts[slot_before] -= 1
        self._slots[call_id] = slot
        self._counts[slot] += 1
