"""The order in which one server's calls get their turn: a bounded FIFO (backpressure) with a concurrency limit."""

from collections import OrderedDict
from typing import Final

from hubbubd.errors import ResourceExhausted

QUEUED_BYTES: Final = 64 * 1024 * 1024
"""The most bytes that the params of one server's waiting calls may take. A single call may take more."""


class CallQueue:
    """FIFO of call ids with `max_in_flight` slots, bounded by number and bytes.

    A parked call has no slot. When it continues on the wire it takes one even beyond the limit, as the server is
    working on it already. A call that has become a task is set aside and needs no slot any more.

    With `one_question_at_a_time` there is one slot, and a parked call blocks the others, so that only one call can be
    the cause of what the server asks.
    """

    def __init__(self, max_in_flight: int, max_queued: int, *, one_question_at_a_time: bool = False) -> None:
        self._queued: OrderedDict[str, int] = OrderedDict()
        self._bytes = 0
        self._in_flight: set[str] = set()
        self._parked: set[str] = set()
        self._aside: set[str] = set()
        self.adopt(max_in_flight, max_queued, one_question_at_a_time=one_question_at_a_time)

    def adopt(self, max_in_flight: int, max_queued: int, *, one_question_at_a_time: bool) -> None:
        """Apply new limits; calls already admitted stay."""
        self._max_in_flight = 1 if one_question_at_a_time else max_in_flight
        self._max_queued = max_queued
        self._one_question_at_a_time = one_question_at_a_time

    @property
    def queued(self) -> tuple[str, ...]:
        """The ids of the waiting calls, next one first."""
        return tuple(self._queued)

    @property
    def sent(self) -> frozenset[str]:
        """The ids of the calls that the server knows of: on the wire or parked."""
        return frozenset(self._in_flight | self._parked)

    @property
    def in_flight(self) -> frozenset[str]:
        """The ids of the calls that hold a slot."""
        return frozenset(self._in_flight)

    @property
    def parked(self) -> frozenset[str]:
        """The ids of the calls whose question is open."""
        return frozenset(self._parked)

    @property
    def aside(self) -> frozenset[str]:
        """The ids of the calls that are tasks at the server."""
        return frozenset(self._aside)

    def add(self, call_id: str, size: int = 0) -> None:
        """Append a new call with params of `size` bytes. Raises ResourceExhausted (QUEUE_FULL)."""
        if len(self._queued) >= self._max_queued:
            raise ResourceExhausted(
                f"{self._max_queued} calls are queued already; wait, or clear the queue", reason="QUEUE_FULL"
            )
        if self._queued and self._bytes + size > QUEUED_BYTES:
            raise ResourceExhausted(
                f"the queued calls take {self._bytes} of {QUEUED_BYTES} bytes already; wait, or clear the queue",
                reason="QUEUE_FULL",
            )
        self._queued[call_id] = size
        self._bytes += size

    def add_again(self, call_id: str, size: int) -> None:
        """Append a call that was admitted before a restart; no limit applies."""
        self._queued[call_id] = size
        self._bytes += size

    def add_first(self, call_id: str) -> None:
        """Put a call that has been sent before at the head; no limit applies."""
        self.remove(call_id)
        self._queued[call_id] = 0  # its bytes were counted when it was admitted
        self._queued.move_to_end(call_id, last=False)

    def next(self) -> str | None:
        """Give a free slot to the next call and return its id; None without a slot or a call."""
        if not self._queued or len(self._in_flight) >= self._max_in_flight:
            return None
        if self._one_question_at_a_time and self._parked:
            return None
        call_id, size = self._queued.popitem(last=False)
        self._bytes -= size
        self._in_flight.add(call_id)
        return call_id

    def park(self, call_id: str) -> None:
        """Free a call's slot while its question is open."""
        self._in_flight.remove(call_id)
        self._parked.add(call_id)

    def unpark(self, call_id: str) -> None:
        """Put a parked call back on the wire, beyond the limit if need be."""
        self._parked.remove(call_id)
        self._in_flight.add(call_id)

    def set_aside(self, call_id: str) -> None:
        """Free a call's slot for good: it has become a task at the server."""
        self.remove(call_id)
        self._aside.add(call_id)

    def remove(self, call_id: str) -> None:
        """Forget a call in whatever state; unknown ids are ignored."""
        self._bytes -= self._queued.pop(call_id, 0)
        self._in_flight.discard(call_id)
        self._parked.discard(call_id)
        self._aside.discard(call_id)

    def __contains__(self, call_id: object) -> bool:
        return any(call_id in each for each in (self._queued, self._in_flight, self._parked, self._aside))
