"""One host's conversation with the hub, whichever process of the hub serves it, or none. It does no input or output.

    host ── handle_host_message ──> Conversation ── Send ──> hub     requests are stored until they have a response
    host <── send_to_host ── Conversation <── handle_hub_message ── hub

A new connection to the hub goes on with the same conversation: it begins with the handshake, and each request that has
no response yet. The hub joins these to the calls that it has made for them.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass

from hubbub_bridge import messages
from hubbub_bridge.messages import HUB_AWAY, INVALID_REQUEST, Key, MalformedMessage, Message
from hubbub_bridge.response_cache import ResponseCache

MAX_REQUESTS = 1000
"""The most requests without a response."""

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""The most bytes of requests without a response, beside one."""

MAX_SUBSCRIPTIONS = 1000
"""The most subscriptions that are made again at a new connection."""

HANDSHAKE = "initialize"
DISCOVER = "server/discover"
TOOLS = "tools/list"
LISTEN = "subscriptions/listen"
READ = "resources/read"
PAGE_OF = re.compile(r"ui://[A-Za-z0-9._-]{1,64}\+", re.IGNORECASE | re.ASCII)
"""How the URIs of the pages of one server begin: its name is before the `+`."""

APPS = "io.modelcontextprotocol/ui"
"""The extension of hosts that show pages of apps: they get tools that others do not."""

CACHED_METHODS = (HANDSHAKE, DISCOVER, TOOLS)
"""Methods whose results are cached for the time when the hub is away."""

LIST_NAMES = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "skills/list": "resources",
}
"""Methods whose lists a host stores, each with the name of its list in `notifications/NAME/list_changed`."""

STATE_PARAMS = {"logging/setLevel": "", "resources/subscribe": "uri", "resources/unsubscribe": "uri"}
"""Methods that change the state of a connection, each with the param that names the changed part."""

ASSUMED_INTRODUCTION = {
    "capabilities": {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
        "logging": {},
    },
    "serverInfo": {"name": "hubbub", "title": "Hubbub"},
}
"""The most likely result of a handshake, for a host that starts before the first hub does."""

WITH_HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
WITHOUT_HANDSHAKE = ("2026-07-28",)
# Revisions that a hub serves, the newest first.

WriteLine = Callable[[bytes], None]
Send = Callable[[bytes, bool], None]
"""Sends a message to the hub, and says whether a hub may have taken it before."""


@dataclass(slots=True)
class UnansweredRequest:
    """A request of the host that has no response yet."""

    raw: bytes
    message: Message
    number: int = 0
    """Its number among the messages sent over the current connection, from 1; 0 if it was not sent over this one."""
    may_be_taken: bool = False
    """Whether a hub may have taken the request over an earlier connection."""
    was_refused: bool = False
    """Whether a hub that was shutting down has refused the request: it goes to the next hub, and to no third."""

    @property
    def method(self) -> str:
        """The method; empty if there is no valid one."""
        return messages.find_text(self.message, "method")

    @property
    def id(self) -> object:
        """The id."""
        return self.message["id"]


class Conversation:
    """The open requests of a host and of the hub, on one bridge. Not thread-safe.

    `send_to_host` sends a message to the host. `on_request` is called whenever a request begins to wait for the hub.
    """

    def __init__(
        self, send_to_host: WriteLine, cache: ResponseCache, version: str, on_request: Callable[[], None]
    ) -> None:
        self._send_to_host = send_to_host
        self._cache = cache
        self._version = version
        self._on_request = on_request
        # The current connection; `_send` is None without a hub.
        self._send: Send | None = None
        self._max_message_bytes = 0  # of a message to this hub
        self._sent_count = 0  # of messages over this connection
        # The requests of the host that have no response yet.
        self._waiting: dict[Key, UnansweredRequest] = {}
        self._waiting_bytes = 0
        self._none_waiting = asyncio.Event()
        self._none_waiting.set()
        # A new connection begins with the handshake, its `notifications/initialized`, and the requests that set the
        # state of a connection, by the part that they set.
        self._handshake: UnansweredRequest | None = None
        self._initialized = b""
        self._connection_state: dict[str, UnansweredRequest] = {}
        # Requests whose responses only go into the cache.
        self._cache_requests: dict[Key, UnansweredRequest] = {}
        # The ids of the hub's requests that the host has not answered.
        self._questions: dict[Key, object] = {}
        # Which lists the host has (values of LIST_NAMES), and whether the lists of the next hub may differ.
        self._listed_kinds: set[str] = set()
        self._lists_may_differ = False

    async def wait_until_answered(self) -> None:
        """Wait until each request of the host has its response, or its error."""
        await self._none_waiting.wait()

    # The host

    def handle_host_message(self, raw: bytes) -> None:
        """Handle a line from the host: a request, a response, or a notification."""
        try:
            message = messages.parse(raw)
        except MalformedMessage as error:
            self._send_to_host(messages.make_error(None, error.code, str(error)))
            return
        if "method" not in message:
            self._handle_host_response(message, raw)
        elif "id" in message:
            self._handle_request(UnansweredRequest(raw, message))
        else:
            self._handle_notification(message, raw)

    def refuse_long_line(self) -> None:
        """Send the host an error for a line that was too long to be read."""
        self._send_to_host(messages.make_error(None, INVALID_REQUEST, "the message is too long"))

    def _handle_request(self, request: UnansweredRequest) -> None:
        """Answer a request of the host from the cache (or a ping without a hub), refuse it, or store and send it."""
        if not messages.is_valid_id(request.id):
            message = f"id must be a string or a number of at most {messages.MAX_ID} characters"
            self._send_to_host(messages.make_error(None, INVALID_REQUEST, message))
            return
        key = messages.make_key(request.id)
        if key in self._waiting:
            self._refuse_request(request, INVALID_REQUEST, "a request with this id is under way")
            return
        is_full = len(self._waiting) >= MAX_REQUESTS or self._waiting_bytes > MAX_WAITING_BYTES
        if is_full:
            self._refuse_request(
                request, HUB_AWAY, f"{len(self._waiting)} requests wait for a response; wait for one of them"
            )
            return
        if request.method == HANDSHAKE:
            self._handshake, self._initialized = request, b""
            self._connection_state.clear()
        if request.method in (HANDSHAKE, DISCOVER) and (response := self._answer_from_cache(request)) is not None:
            self._send_to_host(response)
            self._request_for_cache(request)
            return
        if request.method == "ping" and self._send is None:
            self._send_to_host(messages.make_result(request.id, {}))
            return
        self._add_waiting(key, request)
        self._send_request(request)
        self._on_request()

    def _send_request(self, request: UnansweredRequest) -> None:
        """Send a request to the hub if there is one; refuse a request that is too long for it."""
        if self._send is None:
            return
        if len(request.raw) > self._max_message_bytes:
            self._remove_waiting(messages.make_key(request.id))
            self._refuse_request(request, INVALID_REQUEST, self._describe_length(request.raw))
            return
        request.number = self._send_and_count(request.raw, request.may_be_taken)

    def _request_for_cache(self, request: UnansweredRequest) -> None:
        """Send the hub a request whose response only goes into the cache: the host has its response already."""
        if self._send is not None and len(request.raw) <= self._max_message_bytes:
            self._cache_requests[messages.make_key(request.id)] = request
            self._send_and_count(request.raw)

    def _handle_notification(self, message: Message, raw: bytes) -> None:
        """Store what later connections need of a notification of the host, and send it to the hub."""
        match messages.find_text(message, "method"):
            case "notifications/initialized":
                self._initialized = raw
            case "notifications/cancelled":
                key = messages.make_key(messages.find_member(message, "params", "requestId"))
                if key not in self._waiting:
                    return  # the request has its response already (MCP, basic/utilities/cancellation)
                self._remove_waiting(key)
            case _:
                pass
        self._send_if_connected(raw)

    def _handle_host_response(self, message: Message, raw: bytes) -> None:
        """Send the host's response to the hub, but not a response to a question that was withdrawn meanwhile."""
        id_ = message.get("id")
        if self._questions.pop(messages.make_key(id_), None) is None:
            return
        if self._send is not None and len(raw) > self._max_message_bytes:
            raw = messages.make_error(id_, INVALID_REQUEST, self._describe_length(raw))
        self._send_if_connected(raw)

    def _send_if_connected(self, raw: bytes) -> None:
        """Send a message to the hub if there is one, and the message is not too long for it."""
        if self._send is not None and len(raw) <= self._max_message_bytes:
            self._send_and_count(raw)

    def _send_and_count(self, raw: bytes, again: bool = False) -> int:
        """Send a message, and return its number on this connection. `again`: a hub may have taken it before."""
        assert self._send is not None
        self._send(raw, again)
        self._sent_count += 1
        return self._sent_count

    # The hub

    def on_connected(self, send: Send, max_message_bytes: int) -> None:
        """Begin a connection to a hub, and go on with the same conversation as before.

        Send the handshake, the requests that set the state of a connection, and each request without a response.
        Responses that the host has already go only into the cache. From the second connection on, or if the host has
        lists from the cache, notify the host that its lists may have changed.
        """
        self._send, self._max_message_bytes, self._sent_count = send, max_message_bytes, 0
        if self._handshake is not None:
            if messages.make_key(self._handshake.id) in self._waiting:
                self._send_request(self._handshake)
            else:  # the host has its response, maybe from another version of the hub
                self._request_for_cache(self._handshake)
        if self._initialized:
            self._send_if_connected(self._initialized)
        for request in self._connection_state.values():
            self._request_for_cache(request)
        for request in [each for each in self._waiting.values() if each is not self._handshake]:
            self._send_request(request)
        if self._lists_may_differ:
            self._notify_list_changes()
        self._lists_may_differ = True

    def on_disconnected(self, taken_count: int) -> None:
        """End the connection to a hub. The hub may have taken the first `taken_count` messages sent over it.

        Open questions of the hub are withdrawn at the host: the hub asks them again over the next connection.
        """
        self._send = None
        self._cache_requests.clear()
        for request in self._waiting.values():
            request.may_be_taken = request.may_be_taken or 0 < request.number <= taken_count
            request.number = 0
        for id_ in self._questions.values():
            params = {"requestId": id_, "reason": "the connection to the hub is lost; it will ask again"}
            self._send_to_host(messages.make_notification("notifications/cancelled", params))
        self._questions.clear()
        if self._waiting:
            self._on_request()

    def handle_hub_message(self, raw: bytes, *, draining: bool = False) -> None:
        """Handle a message from the hub: a response, a question or a notification; `draining`: the hub shuts down."""
        try:
            message = messages.parse(raw)
        except MalformedMessage:
            return  # the host could not read it either
        if "method" not in message:
            self._handle_hub_response(message, raw, draining)
            return
        if "id" in message:
            self._questions[messages.make_key(message["id"])] = message["id"]
        elif messages.find_text(message, "method") == "notifications/cancelled":
            self._questions.pop(messages.make_key(messages.find_member(message, "params", "requestId")), None)
        self._send_to_host(raw)

    def _handle_hub_response(self, message: Message, raw: bytes, draining: bool) -> None:
        """Send the hub's response to the host, unless it is for the cache alone, or no request waits for it any more.

        If a hub that is shutting down refuses a request for the first time, the request waits for the next hub.
        """
        if message.get("id") is None:  # an error about a message whose id the hub could not read
            self._send_to_host(raw)
            return
        key = messages.make_key(message.get("id"))
        request = self._cache_requests.pop(key, None)
        if request is not None:
            self._remember_response(request, message)
            return
        request = self._waiting.get(key)
        if request is None:
            return  # the host has cancelled it, or got a response while the hub was away
        shutting_down = messages.find_text(message, "error", "data", "reason") == "SHUTTING_DOWN"
        # If this hub is not draining, the refusal is that of a hub behind this one: the host gets it.
        if draining and shutting_down and not request.was_refused:
            request.was_refused, request.may_be_taken, request.number = True, False, 0
            return
        self._remove_waiting(key)
        self._remember_response(request, message)
        self._send_to_host(raw)

    def _remember_response(self, request: UnansweredRequest, message: Message) -> None:
        """Store what later connections need: the result (in the cache), subscriptions, and which lists the host has."""
        result = messages.find_member(message, "result")
        if not isinstance(result, dict):
            return
        if request.method in CACHED_METHODS and not messages.find_text(request.message, "params", "cursor"):
            self._cache.store(request.method, self._make_audience_key(request), result)  # pyright: ignore[reportUnknownArgumentType]
        if request.method in LIST_NAMES:
            self._listed_kinds.add(LIST_NAMES[request.method])
        if request.method in STATE_PARAMS:
            name = messages.find_text(request.message, "params", STATE_PARAMS[request.method])
            self._connection_state.pop(name, None)
            if request.method != "resources/unsubscribe" and len(self._connection_state) <= MAX_SUBSCRIPTIONS:
                self._connection_state[name] = request
        if request.method == READ and len(self._connection_state) <= MAX_SUBSCRIPTIONS:
            # The next hub must know of which servers the host has pages. So one page of each server is read again.
            page = PAGE_OF.match(messages.find_text(request.message, "params", "uri"))
            if page is not None:
                self._connection_state[f"{READ} {page[0]}"] = request

    # While the hub is away

    def answer_from_cache(self) -> None:
        """Answer the waiting handshakes and lists of tools without the hub; do nothing while a hub is connected.

        A handshake without a cached response gets ASSUMED_INTRODUCTION. A list of tools that is not cached waits.
        """
        if self._send is not None:
            return
        for key, request in list(self._waiting.items()):
            if request.method in CACHED_METHODS:
                response = self._answer_from_cache(request)
                if response is None and request.method != TOOLS:
                    response = messages.make_result(request.id, self._make_assumed_introduction(request))
                if response is not None:
                    self._remove_waiting(key)
                    self._send_to_host(response)

    def fail_requests(self, why: str) -> None:
        """Refuse the waiting requests, with `why` as the message of the error.

        A handshake and a request that only waits for notifications go on waiting. The host of a refused list is
        notified of changed lists when a hub is connected.
        """
        for key, request in list(self._waiting.items()):
            if request.method not in (LISTEN, HANDSHAKE, DISCOVER):
                if request.method in LIST_NAMES:
                    self._mark_list_outdated(request)
                self._remove_waiting(key)
                self._refuse_request(request, HUB_AWAY, why)

    def _answer_from_cache(self, request: UnansweredRequest) -> bytes | None:
        """Return the cached response, and mark a list as outdated; None for a later page, or if there is none."""
        if messages.find_text(request.message, "params", "cursor"):
            return None
        result = self._cache.find(request.method, self._make_audience_key(request))
        if result is None:
            return None
        if request.method in LIST_NAMES:
            self._mark_list_outdated(request)
        return messages.make_result(request.id, result)

    def _mark_list_outdated(self, request: UnansweredRequest) -> None:
        """Remember to notify the host, once a hub is connected, that its list may have changed."""
        self._listed_kinds.add(LIST_NAMES[request.method])
        self._lists_may_differ = True

    def _make_assumed_introduction(self, request: UnansweredRequest) -> Message:
        """Return the most likely result of a handshake, for a host that starts before any hub has run."""
        introduction = {
            **ASSUMED_INTRODUCTION,
            "serverInfo": {**ASSUMED_INTRODUCTION["serverInfo"], "version": self._version},
        }
        if request.method == HANDSHAKE:
            revision = messages.find_text(request.message, "params", "protocolVersion")
            return {"protocolVersion": revision if revision in WITH_HANDSHAKE else WITH_HANDSHAKE[0], **introduction}
        meta = {"io.modelcontextprotocol/serverInfo": introduction.pop("serverInfo")}
        cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return {"supportedVersions": [*WITHOUT_HANDSHAKE, *WITH_HANDSHAKE], **introduction, **cached, "_meta": meta}

    # What is common

    def _make_audience_key(self, request: UnansweredRequest) -> str:
        """Return the part of the cache key that says for which hosts a response holds.

        It is the revision of the request or the handshake; for lists of tools also whether the host shows apps.
        """
        revision, capabilities = messages.find_text(request.message, "params", "_meta", messages.REVISION), None
        if revision:
            capabilities = messages.find_member(request.message, "params", "_meta", messages.CAPABILITIES)
        elif source := request if request.method == HANDSHAKE else self._handshake:
            revision = messages.find_text(source.message, "params", "protocolVersion")
            capabilities = messages.find_member(source.message, "params", "capabilities")
        # `find_member` takes an object; the host's capabilities may be something else, or missing.
        shows_apps = request.method == TOOLS and messages.find_member({"of": capabilities}, "of", "extensions", APPS)
        return revision if shows_apps in (None, False) else f"{revision} apps"

    def _notify_list_changes(self) -> None:
        """Notify the host that each of its lists may have changed, since another hub may serve it now."""
        listeners = [listener for listener in self._waiting.values() if listener.method == LISTEN]
        for name in sorted(self._listed_kinds):
            method = f"notifications/{name}/list_changed"
            if self._handshake is not None:
                self._send_to_host(messages.make_notification(method))
            for listener in listeners:
                if messages.find_member(listener.message, "params", "notifications", f"{name}ListChanged") is True:
                    self._send_to_host(
                        messages.make_notification(method, {"_meta": {messages.SUBSCRIPTION: listener.id}})
                    )

    def _add_waiting(self, key: Key, request: UnansweredRequest) -> None:
        """Store a request until it has a response."""
        self._waiting[key] = request
        self._none_waiting.clear()
        self._waiting_bytes += len(request.raw)

    def _remove_waiting(self, key: Key) -> None:
        """Forget a request that waits, if there is one with this id; the last one ends `wait_until_answered`."""
        request = self._waiting.pop(key, None)
        if request is not None:
            self._waiting_bytes -= len(request.raw)
        if not self._waiting:
            self._none_waiting.set()

    def _refuse_request(self, request: UnansweredRequest, code: int, why: str) -> None:
        """Send the host an error in response to a request."""
        self._send_to_host(messages.make_error(request.id, code, why))

    def _describe_length(self, raw: bytes) -> str:
        """Return the message of the error about a message that is too long for this hub."""
        return f"the message is {len(raw)} bytes long; the hub takes {self._max_message_bytes}"
