"""Sessions as resources: their list, the state and the transcript of each; notifies subscribers of changes."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, unquote

import orjson
from mcp.server.lowlevel.server import Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    EmptyResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    TextResourceContents,
    UnsubscribeRequestParams,
)
from mcp_types import PaginatedRequestParams as Page

from hubbub_acp.faults import AgentFault
from hubbub_acp.sessions.agent_sessions import AgentSessions
from hubbub_acp.sessions.session import AgentSession
from hubbub_acp.surface.turn_calls import Context

LIST: Final = "acp://sessions"
SESSION: Final = "acp://session/"
STATE: Final = "/state"
JSON, MARKDOWN = "application/json", "text/markdown"

NOTICE_S: Final = 0.5
"""Seconds between two notifications about one resource, at least."""

MAX_LISTED: Final = 50
"""So many sessions are listed as resources; the others are read by their URI."""

MAX_SUBSCRIPTIONS: Final = 1000


class SessionResources:
    """The resources, and their subscribers in both families of revisions."""

    def __init__(self, sessions: AgentSessions) -> None:
        self._sessions = sessions
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._subscribed: set[str] = set()  # URIs, by hosts of revisions up to 2025-11-25
        self._host: ServerSession | None = None  # the host that listed or subscribed last: it gets notifications
        self._changed: set[str] = set()  # URIs that subscribers are to be notified of
        self._is_list_changed = False
        self._notifying: asyncio.Task[None] | None = None
        self._listed: list[str] = []  # ids of the sessions, as subscribers know the list

    def register(self, server: Server[Any]) -> None:
        """Add the handlers of resources and of subscriptions to the server."""
        server.add_request_handler("resources/list", Page, self._list_resources)
        server.add_request_handler("resources/templates/list", Page, self._list_templates)
        server.add_request_handler("resources/read", ReadResourceRequestParams, self._read_resource)
        server.add_request_handler("resources/subscribe", SubscribeRequestParams, self._subscribe)
        server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)
        server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, self._listen)

    def note_change(self, session: AgentSession | None) -> None:
        """Notify subscribers soon of a changed session, or of the changed list of sessions (None)."""
        if session is None:
            self._is_list_changed = True
        else:
            uri = make_uri(session.id)
            self._changed |= {LIST, uri, f"{uri}{STATE}"}
        if self._notifying is None or self._notifying.done():
            self._notifying = asyncio.create_task(self._notify_subscribers())

    async def _notify_subscribers(self) -> None:
        """Notify subscribers of what has changed, once in NOTICE_S, until nothing more has changed."""
        while self._changed or self._is_list_changed:
            changed, self._changed = self._changed, set()
            listed = [session.id for session in self._sessions.list_sessions()]
            # Another order is no change of the list.
            is_list_changed = self._is_list_changed and sorted(listed) != sorted(self._listed)
            self._is_list_changed, self._listed = False, listed
            for uri in sorted(changed):
                await self._bus.publish(ResourceUpdated(uri=uri))
                if uri in self._subscribed and self._host is not None:
                    await _send_or_drop(self._host.send_resource_updated(uri))
            if is_list_changed:
                await self._bus.publish(ResourcesListChanged())
                if self._host is not None:
                    await _send_or_drop(self._host.send_resource_list_changed())
            await asyncio.sleep(NOTICE_S)

    async def _list_resources(self, context: Context, params: Any) -> ListResourcesResult:
        """Return the list of sessions and the newest sessions as resources."""
        self._host = context.session
        self._listed = [session.id for session in self._sessions.list_sessions()]
        listed = [Resource(uri=LIST, name="sessions", title="Sessions of the agent", mime_type=JSON)]
        for session in self._sessions.list_sessions()[:MAX_LISTED]:
            title = session.title or session.id
            listed.append(Resource(uri=make_uri(session.id), name=session.id, title=title, mime_type=MARKDOWN))
        return ListResourcesResult(resources=listed)

    async def _list_templates(self, context: Context, params: Any) -> ListResourceTemplatesResult:
        """Return the templates of a session's transcript and state."""
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(
                    uri_template=f"{SESSION}{{id}}",
                    name="transcript",
                    title="Transcript of a session",
                    mime_type=MARKDOWN,
                ),
                ResourceTemplate(
                    uri_template=f"{SESSION}{{id}}{STATE}", name="state", title="State of a session", mime_type=JSON
                ),
            ]
        )

    async def _read_resource(self, context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        """Return a resource. Raises MCPError."""
        uri = str(params.uri)
        try:
            mime_type, text = self._render(uri)
        except AgentFault as fault:
            raise MCPError(INVALID_PARAMS, fault.message, {"code": fault.code, "uri": uri[:1000]}) from None
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=mime_type, text=text)])

    def _render(self, uri: str) -> tuple[str, str]:
        """Return the type and the text of a resource. Raises AgentFault."""
        if uri == LIST:
            return JSON, orjson.dumps(self._sessions.list_states()).decode()
        if not uri.startswith(SESSION):
            raise AgentFault("RESOURCE_UNKNOWN", f"there is no resource {uri[:200]!r}: {LIST} lists the sessions")
        session_id = uri.removeprefix(SESSION)
        if session_id.endswith(STATE):
            session = self._sessions.get(unquote(session_id.removesuffix(STATE)))
            return JSON, orjson.dumps(session.to_wire()).decode()
        session = self._sessions.get(unquote(session_id))
        return MARKDOWN, session.transcript.render(session.title or session.id)

    async def _subscribe(self, context: Context, params: SubscribeRequestParams) -> EmptyResult:
        """Add a subscription to a resource. Raises MCPError if there are too many."""
        if len(self._subscribed) >= MAX_SUBSCRIPTIONS:
            raise MCPError(INVALID_PARAMS, f"{MAX_SUBSCRIPTIONS} resources are subscribed to: give one up first")
        self._host = context.session
        self._subscribed.add(str(params.uri))
        return EmptyResult()

    async def _unsubscribe(self, context: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        """Remove a subscription, if there is one."""
        self._subscribed.discard(str(params.uri))
        return EmptyResult()


def make_uri(session_id: str) -> str:
    """Return the URI of a session's transcript."""
    return f"{SESSION}{quote(session_id, safe='')}"


async def _send_or_drop(notification: Coroutine[Any, Any, None]) -> None:
    """Send a notification; it is lost if the host cannot be reached."""
    with suppress(MCPError, ConnectionError):
        await notification
