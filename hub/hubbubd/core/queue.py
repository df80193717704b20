"""The order in which one server's calls get their turn."""

from collections import OrderedDict

from hubbubd.errors import ResourceExhausted


class CallQueue:
    """First in, first out, with `max_in_flight` slots. A parked call has no slot; one that goes on on the wire
    takes it back even when all are in use, since the server is working on it already. One that has become a task is
    set aside: it needs no slot any more.
    """

    def __init__(self, max_in_flight: int, max_queued: int) -> None:
        self._max_in_flight = max_in_flight
        self._max_queued = max_queued
        self._queued: OrderedDict[str, None] = OrderedDict()
        self._in_flight: set[str] = set()
        self._parked: set[str] = set()
        self._aside: set[str] = set()

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

    def add(self, call_id: str) -> None:
        """Puts a new call at the end. Raises ResourceExhausted (QUEUE_FULL)."""
        if len(self._queued) >= self._max_queued:
            raise ResourceExhausted(
                f"{self._max_queued} calls are queued already; wait, or clear the queue", reason="QUEUE_FULL"
            )
        self._queued[call_id] = None

    def add_first(self, call_id: str) -> None:
        """Puts a call that has been sent before at the head; it was admitted once, so it always fits."""
        self.remove(call_id)
        self._queued[call_id] = None
        self._queued.move_to_end(call_id, last=False)

    def next(self) -> str | None:
        """Gives a free slot to the call whose turn it is; None when there is no slot or no call."""
        if not self._queued or len(self._in_flight) >= self._max_in_flight:
            return None
        call_id, _ = self._queued.popitem(last=False)
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
        self._queued.pop(call_id, None)
        self._in_flight.discard(call_id)
        self._parked.discard(call_id)
        self._aside.discard(call_id)

    def __contains__(self, call_id: object) -> bool:
        return any(call_id in each for each in (self._queued, self._in_flight, self._parked, self._aside))
