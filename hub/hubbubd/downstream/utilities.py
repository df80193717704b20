"""Requests that are neither lists nor calls by a name: completion, the level of log messages, watched resources."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, cast

from hubbubd.core.hosts.host_sessions import with_level, with_resource, without_resource
from hubbubd.core.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from hubbubd.core.servers.catalog import CatalogKind
from hubbubd.core.servers.log_levels import LEVELS
from hubbubd.downstream.calls import call_results
from hubbubd.downstream.hosts.host import HostRequest
from hubbubd.downstream.notifications.session_notifications import LEVEL_S, SessionNotifications
from hubbubd.downstream.protocol import revisions
from hubbubd.downstream.protocol.messages import Refusal, check_length, refusal_for_method
from hubbubd.downstream.views.view import EndpointView, ServerTarget, settle_lookup
from hubbubd.errors import FailedPrecondition, PeerError
from hubbubd.runtime.hub import Hub

EMPTY_RESULT: Final = b"{}"


class Utilities:
    """Serves these requests at one endpoint."""

    def __init__(self, hub: Hub, view: EndpointView) -> None:
        self._hub = hub
        self._view = view

    @asynccontextmanager
    async def with_log_level(self, request: HostRequest, server: str) -> AsyncGenerator[None]:
        """Make a server send log messages of the level that a request names, if any, during the block."""
        if request.log_level is None:
            yield
            return
        holder = object()  # levels are counted by holder, so each request is one
        self._hub.log_levels.set_wanted(server, holder, request.log_level)
        try:
            await self._hub.log_levels.wait_until_sent(server, LEVEL_S)
            yield
        finally:
            self._hub.log_levels.set_wanted(server, holder, None)

    async def ping(self, _: HostRequest) -> bytes:
        """Serve `ping`: return an empty result."""
        return EMPTY_RESULT

    async def complete(self, request: HostRequest) -> bytes:
        """Complete an argument of a prompt or template, at its server. Raises Refusal and HubError."""
        target, ref = await self._find_reference(request)
        params = {**request.params, "ref": ref}
        call = await call_results.make_call(self._hub.calls, request, target.server, request.method, params)
        revision = request.host.revision
        server_revision = self._hub.servers.protocol_version(target.server)
        return revisions.render_result(request.method, call_results.read_result(call), revision, server_revision)

    async def _find_reference(self, request: HostRequest) -> tuple[ServerTarget, dict[str, Any]]:
        """Return the server of a request's prompt or template, and the reference for that server. Raises Refusal."""
        value: object = request.params.get("ref")
        ref = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        kind, member = _REFERENCES.get(str(ref.get("type")), (CatalogKind.PROMPT, ""))
        name = ref.get(member)
        if not isinstance(name, str):
            raise Refusal(
                INVALID_PARAMS, 'params.ref must be {"type": "ref/prompt", "name"} or {"ref/resource", "uri"}'
            )
        check_length(name, f"params.ref.{member}")
        await settle_lookup(self._view, kind)
        target = self._view.find_target(kind, name, request.host.principal)
        return target, {**ref, member: target.name}

    async def set_level(self, request: HostRequest) -> bytes:
        """Set the level of log messages of a session, at its servers and in its record. Raises Refusal."""
        if "logging" not in self._view.introduction(request.host.principal).capabilities:
            raise refusal_for_method(request.method)
        level = request.params.get("level")
        if level not in LEVELS:
            raise Refusal(INVALID_PARAMS, f"params.level must be one of {', '.join(LEVELS)}")
        session = _require_session(request)
        await session.set_level(level)
        await session.store_change(partial(with_level, level))
        return EMPTY_RESULT

    async def subscribe(self, request: HostRequest) -> bytes:
        """Subscribe a session to changes of a resource, and store that in its record. Raises Refusal and HubError."""
        uri, session = _parse_uri(request), _require_session(request)
        try:
            await session.resources.watch(uri)
        except PeerError as exc:
            raise Refusal(exc.code, exc.message, exc.data) from None
        except FailedPrecondition as exc:
            if exc.reason != "SUBSCRIPTIONS_NOT_OFFERED":
                raise
            raise Refusal(METHOD_NOT_FOUND, exc.message) from None
        await session.store_change(partial(with_resource, uri))
        return EMPTY_RESULT

    async def unsubscribe(self, request: HostRequest) -> bytes:
        """End a session's subscription to a resource, and store that in its record. Raises Refusal."""
        uri, session = _parse_uri(request), _require_session(request)
        session.resources.unwatch(uri)
        await session.store_change(partial(without_resource, uri))
        return EMPTY_RESULT


_REFERENCES: Final = {"ref/prompt": (CatalogKind.PROMPT, "name"), "ref/resource": (CatalogKind.TEMPLATE, "uri")}


def _parse_uri(request: HostRequest) -> str:
    """Return the URI that a request names. Raises Refusal."""
    uri = request.params.get("uri")
    if not isinstance(uri, str):
        raise Refusal(INVALID_PARAMS, "params.uri must be a string")
    check_length(uri, "params.uri")
    return uri


def _require_session(request: HostRequest) -> SessionNotifications:
    """Return the notifications of a request's session. Raises Refusal where the revision has none."""
    if request.notifications is None:
        raise refusal_for_method(request.method)
    return request.notifications
