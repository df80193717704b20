"""What becomes of one call and of what its server asks meanwhile."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.runtime.hub import Hub


class CallObserver:
    """One call as it changes, and the pending requests that name it as their cause: `changed` is told of each.

    `waits` is told of these, and of those that the call has perhaps caused.
    """

    def __init__(
        self,
        hub: Hub,
        call_id: str,
        changed: Callable[[PendingRequest], None] | None = None,
        waits: Callable[[PendingRequest], None] | None = None,
    ) -> None:
        self.news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once something has changed since `seen`."""
        self._hub = hub
        self._call_id = call_id
        self._changed = changed
        self._waits = waits
        self._perhaps: set[str] = set()
        self._requests: dict[str, PendingRequest | None] = {}
        self._stack = ExitStack()

    @contextmanager
    def following(self) -> Generator[None]:
        """Follow the call during the block."""
        with self._stack:
            self._stack.enter_context(self._hub.calls.listen(self._call_id, self._call_changed))
            self.look()
            yield

    def look(self) -> None:
        """Look at the call as it is now: what it waits for is told a moment later."""
        if (call := self._hub.calls.find(self._call_id)) is not None:
            self._call_changed(call, None)

    def open(self) -> list[PendingRequest]:
        """Return what waits for an answer, oldest first."""
        found = [request for request in self._requests.values() if request is not None]
        return [request for request in found if request.state is RequestState.OPEN]

    def seen(self) -> None:
        """Wait for further news from now on."""
        if self.news.done():
            self.news = asyncio.get_running_loop().create_future()

    def _call_changed(self, call: Call, live: object) -> None:
        if live is not None:
            return
        self._tell_news()
        for request_id in call.pending_ids:
            if request_id not in self._requests:
                self._requests[request_id] = None
                self._stack.enter_context(self._hub.inbox.listen(request_id, self._request_changed))
                # None: the call is parked before what it waits for is in the inbox.
                if (request := self._hub.inbox.find(request_id)) is not None:
                    self._request_changed(request, None)
        if self._waits is not None:
            self._follow_perhaps(call, self._waits)

    def _follow_perhaps(self, call: Call, waits: Callable[[PendingRequest], None]) -> None:
        for request_id in call.perhaps_pending_ids:
            if request_id not in self._perhaps:
                self._perhaps.add(request_id)
                self._stack.enter_context(self._hub.inbox.listen(request_id, lambda request, _live: waits(request)))
                if (request := self._hub.inbox.find(request_id)) is not None:
                    waits(request)

    def _request_changed(self, request: PendingRequest, _live: object) -> None:
        self._requests[request.id] = request
        self._tell_news()
        if self._changed is not None:
            self._changed(request)
        if self._waits is not None:
            self._waits(request)

    def _tell_news(self) -> None:
        if not self.news.done():
            self.news.set_result(None)
