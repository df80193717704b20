"""Hosts at a hub's endpoint for the server `one`, in virtual time and without a transport."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.downstream import (
    EndpointSession,
    EndpointSessions,
    HostOutbox,
    HostRequest,
    McpEndpoint,
    McpHost,
    ServerView,
    StateTokens,
)
from hubbubd.downstream.protocol.messages import RequestMessage
from hubbubd.errors import PeerError
from hubbubd.runtime.hub import Hub
from hubbubd.store.vault.state_keys import StateKeyRing, StateKeys

from ..runtime.conftest import World, anyio_backend, server, settle, until, watching, world
from ..runtime.peer import Outcome, Sent

__all__ = ["World", "anyio_backend", "settle", "until", "watching", "world"]

OLD, NEW = "2025-11-25", "2026-07-28"
ADA = Principal(name="ada", grants=(Grant(Role.CALLER),), credential="ada")


import_module("cryptography.hazmat.primitives.ciphers.aead")  # the hub would do it in a thread

KEYS = StateKeys().with_new_key(0.0)
"""Those of the data directory, over all restarts."""


def state_keys(hub: Hub) -> StateKeyRing:
    """Return KEYS, by the clock of a hub."""
    return StateKeyRing(Path("unused"), hub.clock, KEYS)


def handles(hub: Hub) -> StateTokens:
    """What seals states, with the keys of all hubs of a test."""
    return StateTokens(state_keys(hub), hub.clock)


class Refused(Exception):
    """A response that is an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.data: Any = error.get("data")


def outcome(response: bytes) -> Any:
    """The result in a response. Raises Refused."""
    message = json.loads(response)
    if "error" in message:
        raise Refused(message["error"])
    return message["result"]


def said(outlet: HostOutbox, method: str = "") -> list[dict[str, Any]]:
    """The notifications that wait in a stream, of one method if it is given."""
    messages = [json.loads(message) for message in outlet.take_all()]
    return [message for message in messages if not method or message["method"] == method]


class OldHost:
    """A host with a session."""

    def __init__(self, session: EndpointSession) -> None:
        self.session = session
        self.stream = session.outlet
        self.outlet = HostOutbox()
        self._ids = iter(range(1, 1000))

    def begin(self, method: str, **params: Any) -> "asyncio.Task[bytes]":
        """A request under way."""
        self.outlet = HostOutbox()
        return self.session.begin(RequestMessage(next(self._ids), method, params), self.outlet)

    async def ask(self, method: str, **params: Any) -> Any:
        """The result of a request. Raises Refused."""
        return outcome(await self.begin(method, **params))


class NewHost:
    """A host without one."""

    def __init__(self, endpoint: McpEndpoint) -> None:
        self.endpoint = endpoint
        self.outlet = HostOutbox()
        self._ids = iter(range(1, 1000))

    def begin(self, method: str, **params: Any) -> "asyncio.Task[bytes]":
        """A request under way."""
        self.outlet = HostOutbox()
        exchange = HostRequest(
            id=next(self._ids),
            method=method,
            params=params,
            host=McpHost(principal=ADA, revision=NEW),
            send=self.outlet.send,
        )
        return asyncio.get_running_loop().create_task(self.endpoint.serve(exchange))

    async def ask(self, method: str, **params: Any) -> Any:
        """The result of a request. Raises Refused."""
        return outcome(await self.begin(method, **params))


class Place:
    """A running hub with the server `one`, and its endpoint for hosts."""

    def __init__(self, hub: Hub, world: World) -> None:
        self.hub = hub
        self.peer = world.peer
        self.endpoint = McpEndpoint(hub, ServerView(hub, "one"), handles(hub))
        self.sessions = EndpointSessions(hub)

    def old(self, revision: str = OLD) -> OldHost:
        """A host of a revision with a handshake, after it."""
        return OldHost(EndpointSession(McpHost(principal=ADA, revision=revision), self.endpoint, self.hub.clock.steady))

    async def lasting(self, revision: str = OLD) -> OldHost:
        """The same, with a session that outlives the hub."""
        return OldHost(await self.sessions.begin(McpHost(principal=ADA, revision=revision), self.endpoint))

    def new(self) -> NewHost:
        """A host of a revision without one."""
        return NewHost(self.endpoint)

    def host(self, revision: str) -> OldHost | NewHost:
        """A host of some revision."""
        return self.new() if revision == NEW else self.old(revision)


Opened = Callable[..., Any]


@pytest.fixture
def place(world: World) -> Opened:
    """Begins a hub with a connected server: `async with place(protocol, capabilities, listing=..., ...)`."""

    @asynccontextmanager
    async def begin(protocol: str = OLD, **options: Any) -> AsyncGenerator[Place]:
        era = {OLD: "handshake", NEW: "stateless"}[protocol]
        world.peer.era = type(world.peer.era)(era)
        for name, value in options.items():
            setattr(world.peer, name, value)
        async with world.hub(server()) as hub:
            await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
            await settle(3)  # its lists were fetched
            yield Place(hub, world)

    return begin


def lists(**members: Any) -> Callable[[Sent], Any]:
    """A server's lists, by the member of the result; change them as you like."""

    async def listing(sent: Sent) -> Outcome:
        member = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}.get(sent.method)
        if sent.method == "logging/setLevel":
            return {}
        if member is None or member not in members:
            raise PeerError(-32601, "Method not found")
        return {member: list(members[member])}

    return listing
