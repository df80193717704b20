"""The level of log messages of each server: the least severe that a caller or host wants, for all connections.

Up to 2025-11-25 a server remembers a level per connection only, so the hub sends it over each new one. From 2026-07-28
on each request carries the level instead.
"""

from collections.abc import Hashable
from contextlib import suppress

import anyio
import structlog

from hubbubd import payload
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.servers.log_levels import least_severe
from hubbubd.errors import HubError, InvalidArgument, PeerError
from hubbubd.runtime.background import Background
from hubbubd.upstream.ports import Era, McpLink

METHOD = "logging/setLevel"

ACCEPT_S = 10.0
"""Seconds a server gets to accept the level."""

log = structlog.get_logger(__name__)


class LogLevels:
    """The levels that callers have set at each server by `logging/setLevel`, and those that hosts want; in memory."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._called_params: dict[str, bytes] = {}
        """By server, the params of the last successful call of METHOD."""
        self._wanted: dict[str, dict[Hashable, str]] = {}
        """By server and holder, the level that a host wants."""
        self._links: dict[str, McpLink | None] = {}
        self._sent: dict[str, tuple[McpLink | None, bytes]] = {}
        """By server, the params that were sent last, and over which connection."""
        self._sending: dict[str, anyio.Event] = {}
        """By server to which a level is being sent, an event that is set afterwards."""

    def set_link(self, server: str, link: McpLink | None) -> None:
        """Set a server's current connection (None: it is down), and send the wanted level over a new one."""
        before, self._links[server] = self._links.get(server), link
        if link is not before:
            self._send_if_due(server)

    def forget(self, server: str) -> None:
        """Forget a removed server."""
        for by_server in (self._called_params, self._links, self._wanted, self._sent):
            by_server.pop(server, None)

    def set_wanted(self, server: str, holder: Hashable, level: str | None) -> None:
        """Set the level that a holder (a session or request of a host) wants of a server; None for none any more."""
        wanted = self._wanted.setdefault(server, {})
        if level is None:
            wanted.pop(holder, None)
        else:
            wanted[holder] = level
        if not wanted:
            del self._wanted[server]
        self._send_if_due(server)

    def sent_level(self, server: str) -> str | None:
        """Return the level that was sent to a server last; None if none was."""
        sent = self._sent.get(server)
        return _parse_level(sent[1]) if sent is not None else None

    async def wait_until_sent(self, server: str, within_s: float) -> None:
        """Wait until a server has the level that is wanted of it, for at most `within_s` seconds."""
        with anyio.move_on_after(within_s):
            while (sending := self._sending.get(server)) is not None:
                await sending.wait()

    def note_call(self, call: Call) -> None:
        """Note the level that a call of METHOD has set, if it succeeded; if hosts want a lower one, send that again."""
        if call.state is CallState.COMPLETED:
            self._called_params[call.server] = call.params
            self._sent[call.server] = self._links.get(call.server), call.params
            self._send_if_due(call.server)

    def _due_params(self, server: str) -> bytes | None:
        """Return params with the least severe level that a caller has set or a host wants; None without any."""
        called, wanted = self._called_params.get(server), self._wanted.get(server)
        if not wanted:
            return called
        # "" is no level, and so does not count.
        return payload.dumps({"level": least_severe([*wanted.values(), _parse_level(called or b"") or ""])})

    def _send_if_due(self, server: str) -> None:
        """Send the level that a server should have in the background, unless it has it."""
        if server not in self._sending and self._find_due(server) is not None:
            self._sending[server] = anyio.Event()
            self._background.start_soon(self._send_due, server)

    def _find_due(self, server: str) -> tuple[McpLink, bytes] | None:
        """Return the connection over which a level is to be sent, and its params; None if nothing is to be sent."""
        link, params = self._links.get(server), self._due_params(server)
        if link is None or params is None or self._sent.get(server) == (link, params):
            return None
        # Callers may set the level of any server; for hosts it is sent only to servers that declare logging.
        return (link, params) if server in self._called_params or "logging" in link.hello.capabilities else None

    async def _send_due(self, server: str) -> None:
        """Send the level that a server should have, again as long as it changes meanwhile."""
        try:
            while (due := self._find_due(server)) is not None:
                self._sent[server] = due
                await self._send(server, *due)
        finally:
            self._sending.pop(server).set()

    async def _send(self, server: str, link: McpLink, params: bytes) -> None:
        """Send a level over a connection; for a stateless server, add it to each request. A failure is only logged."""
        if link.hello.era is Era.STATELESS:
            link.log_level = _parse_level(params)
            return
        with anyio.move_on_after(ACCEPT_S), suppress(PeerError, HubError):
            await link.request(METHOD, payload.loads_message(params, "params"))
            return
        log.info("log level not accepted by server", server=server)


def _parse_level(params: bytes) -> str | None:
    """Return the level in params of METHOD; None if there is none, or the params are no JSON object."""
    with suppress(InvalidArgument):
        level = payload.loads_message(params, "params").get("level")
        return level if isinstance(level, str) else None
    return None
