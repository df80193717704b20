"""The order in which one server's calls get their turn."""

from collections import OrderedDict
from typing import Final

from hubbubd.errors import ResourceExhausted

QUEUED_BYTES: Final = 64 * 1024 * 1024
"""What the params of the calls that wait for one server may take. A call alone may take more."""


class CallQueue:
    """First in, first out, with `max_in_flight` slots. A parked call has no slot; one that goes on on the wire
    takes it back even when all are in use, since the server is working on it already. One that has become a task is
    set aside: it needs no slot any more.

    With `one_question_at_a_time` there is one slot, and a parked call keeps the others from it: so only one call can
    be the cause of what the server asks.
    """

    def __init__(self, max_in_flight: int, max_queued: int, *, one_question_at_a_time: bool = False) -> None:
        self._queued: OrderedDict[str, int] = OrderedDict()
        self._bytes = 0
        self._in_flight: set[str] = set()
        self._parked: set[str] = set()
        self._aside: set[str] = set()
        self.adopt(max_in_flight, max_queued, one_question_at_a_time=one_question_at_a_time)

    def adopt(self, max_in_flight: int, max_queued: int, *, one_question_at_a_time: bool) -> None:
        """Takes other bounds over; what is in already stays."""
        self._max_in_flight = 1 if one_question_at_a_time else max_in_flight
        self._max_queued = max_queued
        self._one_question_at_a_time = one_question_at_a_time

    @property
    def queued(self) -> tuple[str, ...]:
        """Those that wait for their turn, next one first."""
        return tuple(self._queued)

    @property
    def sent(self) -> frozenset[str]:
        """Those the server knows of: on the wire or parked."""
        return frozenset(self._in_flight | self._parked)

    @property
    def in_flight(self) -> frozenset[str]:
        """Those that hold a slot."""
        return frozenset(self._in_flight)

    @property
    def parked(self) -> frozenset[str]:
        """Those whose question is open."""
        return frozenset(self._parked)

    @property
    def aside(self) -> frozenset[str]:
        """Those that the server works on as tasks."""
        return frozenset(self._aside)

    def add(self, call_id: str, size: int = 0) -> None:
        """Puts a new call at the end, with params of `size` bytes. Raises ResourceExhausted (QUEUE_FULL)."""
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
        """Puts a call at the end that was admitted before; it always fits."""
        self._queued[call_id] = size
        self._bytes += size

    def add_first(self, call_id: str) -> None:
        """Puts a call that has been sent before at the head; it was admitted once, so it always fits."""
        self.remove(call_id)
        self._queued[call_id] = 0  # it has taken its place before
        self._queued.move_to_end(call_id, last=False)

    def next(self) -> str | None:
        """Gives a free slot to the call whose turn it is; None when there is no slot or no call."""
        if not self._queued or len(self._in_flight) >= self._max_in_flight:
            return None
        if self._one_question_at_a_time and self._parked:
            return None
        call_id, size = self._queued.popitem(last=False)
        self._bytes -= size
        self._in_flight.add(call_id)
        return call_id

    def park(self, call_id: str) -> None:
        """Takes a call off its slot while its question is open."""
        self._in_flight.remove(call_id)
        self._parked.add(call_id)

    def unpark(self, call_id: str) -> None:
        """Puts a parked call back on the wire, over the limit if need be."""
        self._parked.remove(call_id)
        self._in_flight.add(call_id)

    def set_aside(self, call_id: str) -> None:
        """Takes a call off its slot for good: it has become a task at the server."""
        self.remove(call_id)
        self._aside.add(call_id)

    def remove(self, call_id: str) -> None:
        """Forgets a call, wherever it is."""
        self._bytes -= self._queued.pop(call_id, 0)
        self._in_flight.discard(call_id)
        self._parked.discard(call_id)
        self._aside.discard(call_id)

    def __contains__(self, call_id: object) -> bool:
        return any(call_id in each for each in (self._queued, self._in_flight, self._parked, self._aside))
