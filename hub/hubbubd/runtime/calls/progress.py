"""What calls tell while they are under way, for those who watch them here, and for other members of a fleet."""

from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager

from hubbubd.core.calls.call_states import Call
from hubbubd.runtime.calls.spec import LogEvent, ProgressEvent
from hubbubd.runtime.records import Table

Live = ProgressEvent | LogEvent
Tell = Callable[[Call, Live], None]

MAX_EARLY = 1000
"""The most calls whose newest progress is kept until the call itself is known."""


class LiveCalls:
    """Progress and log messages of calls. They are not stored."""

    def __init__(self, table: Table[Call]) -> None:
        self._table = table
        self._followers: list[Tell] = []
        self._early: OrderedDict[str, ProgressEvent] | None = None

    @property
    def watched(self) -> bool:
        """Whether anybody watches calls here."""
        return self._table.feed.watched

    @property
    def wanted(self) -> bool:
        """Whether anybody wants to know, here or at another member."""
        return bool(self._followers) or self.watched

    def tell(self, call: Call, event: Live) -> None:
        """Publish what a call of one of this hub's servers tells. Of its progress the newest counts."""
        self._publish(call, event)
        for tell in self._followers:
            tell(call, event)

    @contextmanager
    def follow(self, tell: Tell) -> Generator[None]:
        """Tell of all that calls of this hub's servers tell, as it comes, during the block."""
        self._followers.append(tell)
        try:
            yield
        finally:
            self._followers.remove(tell)

    def hear(self, event: Live) -> None:
        """Publish what another member tells of a call; its progress may come before the call itself."""
        call = self._table.record(event.call_id)
        if call is not None:
            self._publish(call, event)
        elif isinstance(event, ProgressEvent):
            early = self._kept_early()
            early[event.call_id] = event
            if len(early) > MAX_EARLY:
                early.popitem(last=False)

    def _publish(self, call: Call, event: Live) -> None:
        key = call.id if isinstance(event, ProgressEvent) else object()
        self._table.feed.publish_live(call.id, call, key, event)

    def _kept_early(self) -> OrderedDict[str, ProgressEvent]:
        if self._early is None:
            early = self._early = OrderedDict[str, ProgressEvent]()

            def known(before: Call | None, call: Call | None) -> None:
                if before is None and call is not None and (event := early.pop(call.id, None)) is not None:
                    self._publish(call, event)

            self._table.follow(known)
        return self._early
