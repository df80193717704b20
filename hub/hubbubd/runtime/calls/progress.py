"""Progress and log messages of calls under way, for watchers here and at other members of a fleet."""

from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager

from hubbubd.core.calls.call_states import Call
from hubbubd.runtime.calls.spec import LogEvent, ProgressEvent
from hubbubd.runtime.records import Table

LiveEvent = ProgressEvent | LogEvent
OnLiveEvent = Callable[[Call, LiveEvent], None]

MAX_EARLY = 1000
"""The most calls whose newest progress is remembered until the call itself is known."""


class LiveCalls:
    """Progress and log messages of calls. They are not stored."""

    def __init__(self, table: Table[Call]) -> None:
        self._table = table
        self._followers: list[OnLiveEvent] = []
        self._early_progress: OrderedDict[str, ProgressEvent] | None = None
        """Progress of calls that are not known yet, by id; None until the first, as only then calls are followed."""

    @property
    def is_watched_here(self) -> bool:
        """Whether a client watches calls at this hub."""
        return self._table.feed.is_watched

    @property
    def is_watched(self) -> bool:
        """Whether a client watches calls, at this hub or at another member of a fleet."""
        return bool(self._followers) or self.is_watched_here

    def publish(self, call: Call, event: LiveEvent) -> None:
        """Publish an event of a call to a server of this hub; newer progress replaces what a watcher has not read."""
        self._publish_here(call, event)
        for on_event in self._followers:
            on_event(call, event)

    @contextmanager
    def follow(self, on_event: OnLiveEvent) -> Generator[None]:
        """During the block, call `on_event` with each event of a call to a server of this hub."""
        self._followers.append(on_event)
        try:
            yield
        finally:
            self._followers.remove(on_event)

    def publish_remote(self, event: LiveEvent) -> None:
        """Publish another member's event of a call here; progress of an unknown call waits until the call is known."""
        call = self._table.record(event.call_id)
        if call is not None:
            self._publish_here(call, event)
        elif isinstance(event, ProgressEvent):
            self._store_early_progress(event)

    def _publish_here(self, call: Call, event: LiveEvent) -> None:
        """Publish an event to those who watch the call at this hub."""
        key = call.id if isinstance(event, ProgressEvent) else object()
        self._table.feed.publish_live(call.id, call, key, event)

    def _store_early_progress(self, event: ProgressEvent) -> None:
        """Store progress until its call is known; beyond MAX_EARLY calls the oldest is dropped."""
        if self._early_progress is None:
            self._early_progress = OrderedDict()
            self._table.follow(self._publish_early_progress)
        self._early_progress[event.call_id] = event
        if len(self._early_progress) > MAX_EARLY:
            self._early_progress.popitem(last=False)

    def _publish_early_progress(self, before: Call | None, call: Call | None) -> None:
        """Publish the progress of a call that came before the call itself, once the call is known."""
        if before is None and call is not None and self._early_progress is not None:
            event = self._early_progress.pop(call.id, None)
            if event is not None:
                self._publish_here(call, event)
