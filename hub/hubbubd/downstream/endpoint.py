"""One endpoint for hosts: which method is served by what.

message ──> Endpoint.serve: table of methods ──> lists (catalog) | calls (runtime) | the endpoint's own answers
"""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import structlog

from hubbubd import bounds, payload
from hubbubd.core.catalog import Kind
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.downstream import calls, messages, own_tools
from hubbubd.downstream.conversations import Conversations
from hubbubd.downstream.handles import Handles
from hubbubd.downstream.host import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, Exchange
from hubbubd.downstream.host_tasks import with_tasks
from hubbubd.downstream.messages import Refusal
from hubbubd.downstream.profiles import View, member_of
from hubbubd.errors import HubError
from hubbubd.runtime.hub import Hub

PAGE: Final = 5000
"""Entries of one page: many hosts read only the first."""

TTL_MS: Final = 0
"""How long a host may keep a list without asking (2026-07-28, caching): it can subscribe to changes instead."""

NAMED: Final[Mapping[str, tuple[Kind, str]]] = MappingProxyType(
    {
        "tools/call": (Kind.TOOL, "name"),
        "prompts/get": (Kind.PROMPT, "name"),
        "resources/read": (Kind.RESOURCE, "uri"),
    }
)
"""The methods that become calls, with the param that names what they are about."""

LISTS: Final = {
    "tools/list": Kind.TOOL,
    "prompts/list": Kind.PROMPT,
    "resources/list": Kind.RESOURCE,
    "resources/templates/list": Kind.TEMPLATE,
}

log = structlog.get_logger(__name__)

Handler = Callable[[Exchange], Awaitable[bytes]]


class Endpoint:
    """Serves the requests of hosts at one address."""

    def __init__(self, hub: Hub, view: View, handles: Handles) -> None:
        self.view = view
        self._conversations = Conversations(hub, view, handles, self._result)
        common: dict[str, Handler] = {
            **dict.fromkeys(LISTS, self._list),
            **dict.fromkeys(NAMED, self._named),
        }
        self._handshake: dict[str, Handler] = {
            **common,
            "initialize": self._initialize,
            "ping": self._ping,
            **self._conversations.session_tasks.methods,
        }
        self._stateless: dict[str, Handler] = {
            **common,
            "server/discover": self._discover,
            **self._conversations.extension.methods,
        }

    async def serve(self, exchange: Exchange) -> bytes:
        """Serve one request and return the response for its host. Never raises but for cancellation."""
        try:
            methods = self._stateless if exchange.host.stateless else self._handshake
            handler = methods.get(exchange.method)
            if handler is None:
                raise messages.unknown_method(exchange.method)
            return messages.result(exchange.id, await handler(exchange))
        except Refusal as refusal:
            return messages.error(exchange.id, refusal)
        except HubError as exc:
            return messages.error(exchange.id, calls.of_error(exc))
        except Exception as exc:
            log.exception("request of a host failed: internal error", method=exchange.method[:100])
            return messages.error(exchange.id, messages.internal(type(exc).__name__))

    async def _initialize(self, exchange: Exchange) -> bytes:
        about = self.view.introduction(exchange.host.principal)
        said: dict[str, Any] = {
            "protocolVersion": exchange.host.revision,
            "capabilities": with_tasks(about.capabilities, exchange.host),
            "serverInfo": about.server_info,
        }
        if about.instructions:
            said["instructions"] = about.instructions
        return payload.dumps(said)

    async def _discover(self, exchange: Exchange) -> bytes:
        about = self.view.introduction(exchange.host.principal)
        said: dict[str, Any] = {
            "supportedVersions": [*STATELESS_REVISIONS, *HANDSHAKE_REVISIONS],
            "capabilities": with_tasks(about.capabilities, exchange.host),
            "_meta": {"io.modelcontextprotocol/serverInfo": about.server_info},
            **_cached(exchange),
        }
        if about.instructions:
            said["instructions"] = about.instructions
        return payload.dumps(said)

    async def _ping(self, exchange: Exchange) -> bytes:
        return b"{}"

    async def _list(self, exchange: Exchange) -> bytes:
        kind = LISTS[exchange.method]
        entries = self.view.entries(kind, exchange.host.principal)
        begin = _offset(exchange.params.get("cursor"), len(entries))
        page = entries[begin : begin + PAGE]
        said: dict[str, Any] = _cached(exchange)
        if begin + PAGE < len(entries):
            said["nextCursor"] = str(begin + PAGE)
        listed = b'{"' + member_of(kind).encode() + b'":[' + b",".join(page) + b"]}"
        return messages.with_members(listed, **said)

    async def _named(self, exchange: Exchange) -> bytes:
        kind, member = NAMED[exchange.method]
        params = exchange.params
        if kind is Kind.TOOL and self.view.searched:
            if params.get("name") == own_tools.SEARCH:
                return of_revision(exchange, own_tools.searched(self.view, params, exchange.host.principal))
            if params.get("name") == own_tools.CALL:
                params = own_tools.unwrapped(params)
        named = params.get(member)
        if not isinstance(named, str):
            raise Refusal(INVALID_PARAMS, f"params.{member} must be a string")
        target = self.view.target(kind, named, exchange.host.principal)
        params = {**params, member: target.name}
        result = await self._conversations.call(exchange, target.server, exchange.method, params)
        return self._result(exchange, target.server, result)

    def _result(self, exchange: Exchange, server: str, result: bytes) -> bytes:
        """Return a server's result as the host sees it."""
        return of_revision(exchange, self.view.shown(server, result))


def _cached(exchange: Exchange) -> dict[str, Any]:
    """Return the members that the results of lists have in a revision without a handshake."""
    if not exchange.host.stateless:
        return {}
    return {"resultType": "complete", "ttlMs": TTL_MS, "cacheScope": "private"}


def of_revision(exchange: Exchange, result: bytes) -> bytes:
    """Return a server's result as the host's revision has it."""
    if exchange.host.stateless and b'"resultType"' not in result:
        return messages.with_members(result, resultType="complete")
    return result


def _offset(cursor: object, count: int) -> int:
    if cursor is None:
        return 0
    begin = bounds.whole_text(cursor, high=count) if isinstance(cursor, str) else None
    if begin is not None:
        return begin
    raise Refusal(INVALID_PARAMS, "params.cursor is not one of this list's; begin again without it")
