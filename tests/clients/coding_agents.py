"""A scripted hub with coding agents behind it: their sessions, and questions of these."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from hubbub.v1 import catalog_pb2, common_pb2, event_pb2, inbox_pb2

from .conftest import Refusal, ScriptedHub
from .states import script

STATE: dict[str, Any] = {
    "id": "s1",
    "agent": {"name": "opencode", "title": "opencode", "version": "1.2"},
    "cwd": "/srv/shop",
    "title": "Round the prices",
    "state": "waiting",
    "startedAt": "2026-11-29T10:00:00Z",
    "updatedAt": "2026-11-29T10:05:00.5Z",
    "turns": 2,
    "plan": [
        {"content": "Read", "status": "completed", "priority": "high"},
        {"content": "Write", "status": "in_progress", "priority": "low"},
        {"content": "Test", "status": "pending", "priority": "low"},
    ],
    "tools": [
        {
            "id": "1",
            "title": "Read prices.py",
            "kind": "read",
            "status": "completed",
            "paths": ["prices.py"],
            "at": "x",
        },
        {"id": "2", "title": "npm test", "kind": "execute", "status": "failed", "paths": [], "at": "x"},
    ],
    "waiting": {"question": "q1", "title": "Run npm test?", "since": "2026-11-29T10:05:00Z"},
    "text": "I round the prices.\x1b[31m",
    "changed": ["/srv/shop/prices.py"],
    "stopReason": None,
    "error": None,
}


def contents(value: object) -> dict[str, Any]:
    """The result of reading a resource with this value as JSON."""
    return {"contents": [{"uri": "acp://sessions", "mimeType": "application/json", "text": json.dumps(value)}]}


class Agents:
    """What the agents of a scripted hub say: `sessions` by server; `say` after a change."""

    def __init__(self, hub: ScriptedHub, **sessions: Any) -> None:
        self.sessions: dict[str, Any] = sessions
        self._hub = hub
        self._changed = asyncio.Event()
        script(hub)
        hub.streams |= {"WatchCatalogLists": self._lists, "WatchResource": self._resource}
        hub.replies["ListCatalogEntries"] = self._entries

    def say(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def ask(self, session: str) -> None:
        """Have one question open, of a session of `coder`."""
        asked = {
            "session": session,
            "cwd": "/srv/shop",
            "toolCall": {"kind": "execute", "title": "npm test"},
            "options": [
                {"optionId": "once", "name": "Allow", "kind": "allow_once"},
                {"optionId": "ever", "name": "Always", "kind": "allow_always"},
                {"optionId": "no", "name": "Reject", "kind": "reject_once"},
            ],
        }
        choices = [{"const": each["optionId"], "title": each["name"]} for each in asked["options"]]  # type: ignore[index]
        schema = {"type": "object", "properties": {"decision": {"type": "string", "oneOf": choices}}}
        params = {"message": "Run npm test?", "requestedSchema": schema, "_meta": {"acp/toolCall": asked}}
        request = inbox_pb2.PendingRequest(
            id="q1",
            server="coder",
            kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM,
            state=inbox_pb2.PENDING_REQUEST_STATE_OPEN,
            request=json.dumps(params).encode(),
        )

        async def requests(_: Any) -> AsyncIterator[Any]:
            step = inbox_pb2.WatchPendingRequestsResponse
            yield step(upsert=request)
            yield step(synced=common_pb2.WatchSynced())
            await asyncio.Event().wait()

        self._hub.streams["WatchPendingRequests"] = requests
        self._hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=request)
        self._hub.replies["ClaimPendingRequest"] = lambda _: inbox_pb2.ClaimPendingRequestResponse(
            pending_request=request
        )
        self._hub.replies["ReleasePendingRequest"] = lambda _: inbox_pb2.ReleasePendingRequestResponse(
            pending_request=request
        )

    async def _lists(self, _: Any) -> AsyncIterator[Any]:
        step = catalog_pb2.WatchCatalogListsResponse
        yield step(synced=common_pb2.WatchSynced())
        while True:
            await self._changed.wait()
            yield step(upsert=catalog_pb2.CatalogList(id="x", server="coder", kind=catalog_pb2.CATALOG_KIND_RESOURCE))

    def _entries(self, _: Any) -> Any:
        entries = [
            catalog_pb2.CatalogEntry(
                server=server,
                kind=catalog_pb2.CATALOG_KIND_RESOURCE,
                object=json.dumps({"uri": "acp://sessions", "name": "sessions"}).encode(),
            )
            for server in self.sessions
        ]
        return catalog_pb2.ListCatalogEntriesResponse(entries=entries)

    async def _resource(self, request: Any) -> AsyncIterator[Any]:
        while True:
            said = self.sessions.get(request.server)
            if said is None:
                raise Refusal("NOT_FOUND", "SERVER_NOT_FOUND", f"no server {request.server!r}")
            update = event_pb2.ResourceUpdate(server=request.server, uri=request.uri)
            update.result = json.dumps(said if isinstance(said, dict) else contents(said)).encode()
            yield event_pb2.WatchResourceResponse(update=update)
            await self._changed.wait()
