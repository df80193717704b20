"""Who is connected, and one request of theirs."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from hubbubd.core.access import Principal
from hubbubd.core.calls.call_states import CallOrigin
from hubbubd.core.hosts.app_tools import PagesRead
from hubbubd.core.hosts.extensions import app_entry
from hubbubd.core.hosts.host_sessions import MAX_READ_FROM
from hubbubd.core.hosts.host_uris import is_page
from hubbubd.core.inbox.request_states import RequestKind
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.core.servers.log_levels import LEVELS, is_visible_at
from hubbubd.core.tasks import EXTENSION
from hubbubd.downstream.notifications.session_notifications import SessionNotifications
from hubbubd.downstream.protocol.messages import Id, Refusal, ResponseMessage
from hubbubd.runtime.oversight import ConnectedHost, HostIdentity, OpenRequest

HANDSHAKE_REVISIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions with a handshake, the newest first."""

STATELESS_REVISIONS: Final = ("2026-07-28",)
"""Revisions without one: each request says who asks."""

WITH_TASKS: Final = HANDSHAKE_REVISIONS[0]
"""The one revision with a handshake that has tasks."""

MAX_NAME: Final = 100
"""Characters that are shown of the name that a host gives itself, and of its version."""

LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
"""The member of a request's `_meta` that asks for log messages (2026-07-28)."""

OUTLET_BYTES: Final = 4 * 1024 * 1024
"""Bytes that may wait on one stream until the host reads them; beyond that the stream is cut."""


class MessageSink(Protocol):
    """Where messages to a host are put."""

    def send(self, message: bytes) -> None:
        """Send a message to the host, without waiting."""
        ...


class HostOutbox:
    """A queue of messages to a host on one stream. Beyond its bound the stream is closed, and the host stays."""

    def __init__(self, max_bytes: int = OUTLET_BYTES) -> None:
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._max_bytes = max_bytes
        self._news: asyncio.Future[bool] | None = None
        self.closed = False
        self.overrun = False
        """Whether the stream was closed because too much waited in it."""

    @property
    def unread_bytes(self) -> int:
        """How many bytes wait until the host reads them."""
        return self._queued_bytes

    def send_unless_queued(self, message: bytes) -> None:
        """Queue a message, unless an equal one is queued."""
        if message not in self._queue:
            self.send(message)

    def send(self, message: bytes) -> None:
        """Queue a message; drop it once the stream is closed. Beyond the bound close the stream and drop all."""
        if self.closed:
            return
        if self._queued_bytes + len(message) > self._max_bytes and self._queue:
            self.overrun = True
            self.take_all()
            self.close()
            return
        self.send_always(message)

    def send_always(self, message: bytes) -> None:
        """Queue a message, however many bytes are queued; drop it once the stream is closed."""
        if self.closed:
            return
        self._queue.append(message)
        self._queued_bytes += len(message)
        _end_wait(self._news, has_news=True)

    @property
    def is_empty(self) -> bool:
        """Whether no message is queued."""
        return not self._queue

    def close(self) -> None:
        """Close the stream; what is queued can still be taken."""
        self.closed = True
        _end_wait(self._news, has_news=True)

    def take_all(self) -> list[bytes]:
        """Remove and return the queued messages, without waiting for any."""
        messages = list(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        return messages

    async def wait_for_news(self, within_s: float | None = None) -> bool:
        """Return True once a message is queued or the stream is closed; False after `within_s` seconds without either.

        One task may wait at a time.
        """
        if self._queue or self.closed:
            return True
        loop = asyncio.get_running_loop()
        self._news = news = loop.create_future()
        timer = None if within_s is None else loop.call_later(within_s, lambda: _end_wait(news, has_news=False))
        try:
            return await news
        finally:
            if timer is not None:
                timer.cancel()


def _end_wait(news: asyncio.Future[bool] | None, *, has_news: bool) -> None:
    """End a wait for news, if there is one; the wait returns `has_news`, whether there is news."""
    if news is not None and not news.done():
        news.set_result(has_news)


class Presence:
    """Whether the connection exists over which a host waits for one response."""

    def __init__(self) -> None:
        self.is_connected = True
        self._listeners: list[Callable[[], None]] = []

    def set_connected(self, *, connected: bool) -> None:
        """Note whether the connection exists now, and call the listeners if that has changed."""
        if connected != self.is_connected:
            self.is_connected = connected
            for listener in list(self._listeners):
                listener()

    @contextmanager
    def call_on_change(self, listener: Callable[[], None]) -> Generator[None]:
        """Call a listener with each change during the block."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)


@dataclass(slots=True, kw_only=True)
class McpHost:
    """A connected MCP client. Its name and version (`info`) are its own claims, and not verified."""

    principal: Principal
    revision: str
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    capabilities: dict[str, Any] = field(default_factory=dict[str, Any])
    via: str = "http"
    process: str = ""
    """In revisions without a session, the process of its program that sends the request; "" if not known."""
    unattended: dict[RequestKind, float] = field(default_factory=dict[RequestKind, float])
    """By kind of question, when its process last answered one without a person (steady clock)."""
    read_from: set[str] = field(default_factory=set[str])
    """Servers whose pages (MCP Apps) its process has read."""
    is_listening: Callable[[], bool] = lambda: False
    """Returns whether the host has a stream of its own open, beside those of its requests."""
    connected: ConnectedHost | None = None
    """The host as operators see it; set in revisions with a handshake."""
    origins: dict[str, CallOrigin] = field(default_factory=dict[str, CallOrigin])
    """By server that the host has called, the origin of its calls."""
    stateless: bool = field(init=False)
    """Whether its revision has no handshake, and so no requests of the hub."""
    app_entry: dict[str, Any] | None = field(init=False)
    """The part that the hub reads of its MCP Apps capability; None if the host shows no pages of apps."""

    def __post_init__(self) -> None:
        self.stateless = self.revision in STATELESS_REVISIONS
        self.app_entry = app_entry(self.capabilities)

    @property
    def name(self) -> str:
        """The host's name and version by its own claim, cut to MAX_NAME characters each, for people."""
        parts = (self.info.get("name"), self.info.get("version"))
        return " ".join([part[:MAX_NAME] for part in parts if isinstance(part, str)]) or "an unnamed host"

    @property
    def follows_tasks(self) -> bool:
        """Whether the host has declared the tasks extension (2026-07-28)."""
        extensions = self.capabilities.get("extensions")
        return self.stateless and isinstance(extensions, dict) and EXTENSION in extensions

    @property
    def shows_apps(self) -> bool:
        """Whether the host shows pages of apps (MCP Apps)."""
        return self.app_entry is not None

    @property
    def pages_read(self) -> PagesRead | None:
        """The servers whose pages (MCP Apps) the host has read; None for a host that shows no pages.

        They are complete unless a session has read from more servers than are remembered.
        """
        is_complete = not self.stateless and len(self.read_from) < MAX_READ_FROM
        return PagesRead(self.read_from, is_complete=is_complete) if self.shows_apps else None

    def note_read(self, server: str, uri: str) -> bool:
        """Note that the host has read a resource; return whether this was the first page (MCP Apps) of this server.

        When a page calls a tool, the tool is looked for at the servers whose pages the host has read.
        """
        if not is_page(uri) or not self.shows_apps or server in self.read_from:
            return False
        self.read_from.add(server)
        return True

    def identity(self, endpoint: str) -> HostIdentity:
        """Return what operators see of the host at an endpoint; its own claims are cut to MAX_NAME characters."""
        name, version = (self.info.get(key) for key in ("name", "version"))
        return HostIdentity(
            principal=self.principal.name,
            name=name[:MAX_NAME] if isinstance(name, str) else "",
            version=version[:MAX_NAME] if isinstance(version, str) else "",
            revision=self.revision,
            via=self.via,
            endpoint=endpoint,
            process=self.process,
        )


class TaskMode(Enum):
    """Whether a host's request becomes a task of the hub."""

    NONE = "never: the host or its revision has no tasks, or the method has none"
    REQUESTED = "the host requests it (2025-11-25)"
    POSSIBLE = "as the hub decides in the course of the call: the host follows tasks (2026-07-28)"


class RequestSender(Protocol):
    """Sends a request to a host. `on_late` gets a response that comes after the request was cancelled."""

    def __call__(
        self, method: str, params: dict[str, Any], on_late: Callable[[ResponseMessage], None] | None = None
    ) -> Awaitable[ResponseMessage]: ...


@dataclass(slots=True, kw_only=True)
class HostRequest:
    """One request of a host, being served.

    `send` sends a message that belongs to this request, before its result. `call_key`, where the host's transport may
    send a request again, is the same both times. `notifications` are those of the session, in revisions that have one.
    `ask` sends a request of the hub and returns the host's response, and notifies the host of a cancellation; None
    where its revision has no such requests. `leaving` is set when lasting requests are to end, such as
    `subscriptions/listen`; with None they last until the hub stops.
    """

    id: Id
    method: str
    params: dict[str, Any]
    host: McpHost
    send: Callable[[bytes], None]
    call_key: str | None = None
    open_request: OpenRequest | None = None
    """The request as operators see it."""
    notifications: SessionNotifications | None = None
    ask: RequestSender | None = None
    leaving: asyncio.Event | None = None
    presence: Presence = field(default_factory=Presence)
    by_app: bool = False
    """Whether a page of an app makes the request, as far as that is known."""
    own_hold_s: float | None = None
    """For how many seconds the request itself asks to be held while people are asked."""

    @property
    def hold_s(self) -> float | None:
        """For how many seconds the request is to be held (kept open) while people are asked; None if not stated.

        The request's own value goes before that of its credential.
        """
        return self.host.principal.hold_s if self.own_hold_s is None else self.own_hold_s

    @property
    def meta(self) -> dict[str, Any]:
        """The request's `_meta`."""
        return self.params.get("_meta") or {}

    @property
    def log_level(self) -> str | None:
        """The level of log messages that the request itself asks for (2026-07-28); None if it asks for none."""
        if not self.host.stateless:
            return None
        level = self.meta.get(LOG_LEVEL)
        return level if level in LEVELS else None

    @property
    def task_mode(self) -> TaskMode:
        """Whether the request becomes a task. Raises Refusal if it requests one in a malformed way."""
        if self.method != "tools/call":
            return TaskMode.NONE
        if self.host.stateless:
            return TaskMode.POSSIBLE if self.host.follows_tasks else TaskMode.NONE
        if self.host.revision != WITH_TASKS or "task" not in self.params:
            return TaskMode.NONE
        if not isinstance(self.params["task"], dict):
            raise Refusal(INVALID_PARAMS, "params.task must be an object")
        return TaskMode.REQUESTED

    def note_call(self, call_id: str) -> None:
        """Let operators see which call the request has become."""
        if self.open_request is not None:
            self.open_request.call_id = call_id

    def wants_log(self, server: str, level: object) -> bool:
        """Return whether the host wants a log message of this level that a server sends during the request."""
        if self.notifications is not None:
            return self.notifications.wants_log(server, level)
        return self.log_level is not None and is_visible_at(level, self.log_level)
