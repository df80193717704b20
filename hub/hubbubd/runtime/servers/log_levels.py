"""The level of log messages that was asked of each server. A server knows it for as long as a connection lasts, so it
is asked again over each new one; from 2026-07-28 on each request carries it instead."""

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
"""Longest wait for a server to take it."""

log = structlog.get_logger(__name__)


class LogLevels:
    """What the last call of `logging/setLevel` to each server asked for, until the hub ends."""

    def __init__(self, calls: Table[Call], background: Background) -> None:
        self._background = background
        self._asked: dict[str, bytes] = {}
        self._links: dict[str, Link | None] = {}
        calls.follow(self._follow_call)

    def follow(self, server: str, link: Link | None) -> None:
        """Notes how a server is connected now."""
        before, self._links[server] = self._links.get(server), link
        params = self._asked.get(server)
        if link is not None and link is not before and params is not None and link.hello.era is Era.HANDSHAKE:
            self._background.start_soon(self._tell, server, link, params)

    def forget(self, server: str) -> None:
        """The server is gone."""
        self._asked.pop(server, None)
        self._links.pop(server, None)

    def _follow_call(self, before: Call | None, after: Call | None) -> None:
        if after is not None and after.method == METHOD and after.state is CallState.COMPLETED:
            self._asked[after.server] = after.params

    async def _tell(self, server: str, link: Link, params: bytes) -> None:
        with anyio.move_on_after(TELL_S), suppress(PeerError, HubError):
            await link.request(METHOD, payload.loads(params))
            return
        log.info("a server did not take the level of its log messages again", server=server)
