"""Replays `logging/setLevel` over new connections, as servers remember a level per connection only (2025-11-25).

From 2026-07-28 on each request carries the level instead.
"""

from contextlib import suppress

import anyio
import structlog

from hubbubd import payload
from hubbubd.core.calls import Call, CallState
from hubbubd.errors import HubError, PeerError
from hubbubd.runtime.background import Background
from hubbubd.runtime.records import Table
from hubbubd.upstream.ports import Era, Link

METHOD = "logging/setLevel"

TELL_S = 10.0
"""Seconds a server gets to accept the level."""

log = structlog.get_logger(__name__)


class LogLevels:
    """The params of the last successful `logging/setLevel` call to each server, in memory."""

    def __init__(self, calls: Table[Call], background: Background) -> None:
        self._background = background
        self._asked: dict[str, bytes] = {}
        self._links: dict[str, Link | None] = {}
        calls.follow(self._follow_call)

    def follow(self, server: str, link: Link | None) -> None:
        """Note a server's current connection; set the level over a new one."""
        before, self._links[server] = self._links.get(server), link
        params = self._asked.get(server)
        if link is not None and link is not before and params is not None and link.hello.era is Era.HANDSHAKE:
            self._background.start_soon(self._tell, server, link, params)

    def forget(self, server: str) -> None:
        """Forget a removed server."""
        self._asked.pop(server, None)
        self._links.pop(server, None)

    def _follow_call(self, before: Call | None, after: Call | None) -> None:
        if after is not None and after.method == METHOD and after.state is CallState.COMPLETED:
            self._asked[after.server] = after.params

    async def _tell(self, server: str, link: Link, params: bytes) -> None:
        with anyio.move_on_after(TELL_S), suppress(PeerError, HubError):
            await link.request(METHOD, payload.loads_message(params, "params"))
            return
        log.info("log level not accepted by server", server=server)
