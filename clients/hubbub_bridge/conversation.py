"""One host's conversation with the hub, whichever process of the hub serves it, or none. It does no input or output.

    host ── from_host ──> Conversation ── Send ──> hub            requests are kept until they have a response
    host <── tell_host ── Conversation <── from_hub ── hub

A new connection to the hub begins with what makes it the same conversation: the handshake, and each request that has
no response yet. The hub joins these to the calls that it has made for them.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from hubbub_bridge import messages
from hubbub_bridge.messages import HUB_AWAY, INVALID_REQUEST, Key, MalformedMessage, Message
from hubbub_bridge.response_cache import ResponseCache

MAX_REQUESTS = 1000
"""The most requests without a response."""

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""The most bytes of requests without a response, beside one."""

MAX_KEPT = 1000
"""The most subscriptions that are made again at a new connection."""

HANDSHAKE = "initialize"
DISCOVER = "server/discover"
TOOLS = "tools/list"
LISTEN = "subscriptions/listen"
REMEMBERED = (HANDSHAKE, DISCOVER, TOOLS)
"""Methods whose results are kept for when the hub is away."""

LISTS = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}
"""Methods whose lists a host keeps, each with the name of its list in `notifications/NAME/list_changed`."""

STATE = {"logging/setLevel": "", "resources/subscribe": "uri", "resources/unsubscribe": "uri"}
"""Methods that change the state of a connection, each with the param that names what of it."""

MADE_UP = {
    "capabilities": {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
        "logging": {},
    },
    "serverInfo": {"name": "hubbub", "title": "Hubbub"},
}
"""What a hub is most likely to say of itself, for a host that starts before the first hub does."""

WITH_HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
WITHOUT_HANDSHAKE = ("2026-07-28",)
# Revisions that a hub serves, the newest first.

Tell = Callable[[bytes], None]
Send = Callable[[bytes, bool], None]
"""Sends a message to the hub, and says whether a hub may have taken it before."""


@dataclass(slots=True)
class UnansweredRequest:
    """A request of the host that has no response yet."""

    raw: bytes
    message: Message
    place: int = 0
    """Its place among the messages of the connection there is, from 1; 0 if it was not sent over this one."""
    again: bool = False
    """Whether a hub may have taken it over an earlier connection."""
    refused: bool = False
    """Whether a hub that was shutting down has refused it: the next one is asked, and no third."""

    @property
    def method(self) -> str:
        """The method; empty if there is no valid one."""
        return messages.text(self.message, "method")

    @property
    def id(self) -> object:
        """The id."""
        return self.message["id"]


class Conversation:
    """What a host has asked and was asked, on one bridge. Not thread-safe.

    `tell_host` takes a message for the host. `on_request` is called whenever a request begins to wait for the hub.
    """

    def __init__(self, tell_host: Tell, memory: ResponseCache, version: str, on_request: Callable[[], None]) -> None:
        self._tell_host = tell_host
        self._memory = memory
        self._version = version
        self._on_request = on_request
        self._send: Send | None = None
        self._max_message_bytes = 0
        self._sent = 0
        self._waiting: dict[Key, UnansweredRequest] = {}
        self._waiting_bytes = 0
        self._none_waiting = asyncio.Event()
        self._none_waiting.set()
        self._hello: UnansweredRequest | None = None
        self._initialized = b""
        self._state: dict[str, UnansweredRequest] = {}
        self._silent: dict[Key, UnansweredRequest] = {}
        self._questions: dict[Key, object] = {}
        self._listed: set[str] = set()
        self._tell_changes = False

    async def answered(self) -> None:
        """Wait until each request of the host has its response, or its error."""
        await self._none_waiting.wait()

    # The host

    def from_host(self, raw: bytes) -> None:
        """Take a line of the host."""
        try:
            message = messages.read(raw)
        except MalformedMessage as wrong:
            self._tell_host(messages.error(None, wrong.code, str(wrong)))
            return
        if "method" not in message:
            self._answered(message, raw)
        elif "id" in message:
            self._asked(UnansweredRequest(raw, message))
        else:
            self._told(message, raw)

    def too_long(self) -> None:
        """Say that a line of the host was too long to be read."""
        self._tell_host(messages.error(None, INVALID_REQUEST, "the message is too long"))

    def _asked(self, asked: UnansweredRequest) -> None:
        if not messages.is_id(asked.id):
            why = f"id must be a string or a number of at most {messages.MAX_ID} characters"
            self._tell_host(messages.error(None, INVALID_REQUEST, why))
            return
        key = messages.key(asked.id)
        if key in self._waiting:
            self._refuse(asked, INVALID_REQUEST, "a request with this id is under way")
            return
        full = len(self._waiting) >= MAX_REQUESTS or self._waiting_bytes > MAX_WAITING_BYTES
        if full:
            self._refuse(asked, HUB_AWAY, f"{len(self._waiting)} requests wait for a response; wait for one of them")
            return
        if asked.method == HANDSHAKE:
            self._hello, self._initialized = asked, b""
            self._state.clear()
        if asked.method in (HANDSHAKE, DISCOVER) and (known := self._known(asked)) is not None:
            self._tell_host(known)
            self._ask_silently(asked)
            return
        if asked.method == "ping" and self._send is None:
            self._tell_host(messages.result(asked.id, {}))
            return
        self._wait(key, asked)
        self._pass_on(asked)
        self._on_request()

    def _pass_on(self, asked: UnansweredRequest) -> None:
        """Send a request, if there is a hub and it takes as long a one."""
        if self._send is None:
            return
        if len(asked.raw) > self._max_message_bytes:
            self._forget(messages.key(asked.id))
            self._refuse(asked, INVALID_REQUEST, self._too_long(asked.raw))
            return
        asked.place = self._pass(asked.raw, asked.again)

    def _ask_silently(self, asked: UnansweredRequest) -> None:
        """Ask the hub what the host need not hear any more, so that it is known the next time."""
        if self._send is not None and len(asked.raw) <= self._max_message_bytes:
            self._silent[messages.key(asked.id)] = asked
            self._pass(asked.raw)

    def _told(self, message: Message, raw: bytes) -> None:
        match messages.text(message, "method"):
            case "notifications/initialized":
                self._initialized = raw
            case "notifications/cancelled":
                key = messages.key(messages.member(message, "params", "requestId"))
                if key not in self._waiting:
                    return  # it has its response: MCP, basic/utilities/cancellation
                self._forget(key)
            case _:
                pass
        self._say(raw)

    def _answered(self, message: Message, raw: bytes) -> None:
        """Take the host's response. One to a question that was withdrawn meanwhile goes nowhere."""
        id_ = message.get("id")
        if self._questions.pop(messages.key(id_), None) is None:
            return
        if self._send is not None and len(raw) > self._max_message_bytes:
            raw = messages.error(id_, INVALID_REQUEST, self._too_long(raw))
        self._say(raw)

    def _say(self, raw: bytes) -> None:
        if self._send is not None and len(raw) <= self._max_message_bytes:
            self._pass(raw)

    def _pass(self, raw: bytes, again: bool = False) -> int:
        """Send a message to the hub, and return its place."""
        assert self._send is not None
        self._send(raw, again)
        self._sent += 1
        return self._sent

    # The hub

    def connected(self, send: Send, max_message_bytes: int) -> None:
        """Go on with a hub."""
        self._send, self._max_message_bytes, self._sent = send, max_message_bytes, 0
        if self._hello is not None:
            if messages.key(self._hello.id) in self._waiting:
                self._pass_on(self._hello)
            else:
                self._ask_silently(self._hello)
        if self._initialized:
            self._say(self._initialized)
        for asked in self._state.values():
            self._ask_silently(asked)
        for asked in [each for each in self._waiting.values() if each is not self._hello]:
            self._pass_on(asked)
        if self._tell_changes:
            self._lists_changed()
        self._tell_changes = True

    def disconnected(self, reached: int) -> None:
        """Go on without a hub, which may have taken as many messages as have `reached` it.

        Its questions are withdrawn, and come again with the next connection.
        """
        self._send = None
        self._silent.clear()
        for asked in self._waiting.values():
            asked.again = asked.again or 0 < asked.place <= reached
            asked.place = 0
        for id_ in self._questions.values():
            gone = {"requestId": id_, "reason": "the connection to the hub is lost; it will ask again"}
            self._tell_host(messages.notification("notifications/cancelled", gone))
        self._questions.clear()
        if self._waiting:
            self._on_request()

    def from_hub(self, raw: bytes, *, draining: bool = False) -> None:
        """Take a message of the hub; `draining` if it shuts down."""
        try:
            message = messages.read(raw)
        except MalformedMessage:
            return
        if "method" not in message:
            self._response(message, raw, draining)
            return
        if "id" in message:
            self._questions[messages.key(message["id"])] = message["id"]
        elif messages.text(message, "method") == "notifications/cancelled":
            self._questions.pop(messages.key(messages.member(message, "params", "requestId")), None)
        self._tell_host(raw)

    def _response(self, message: Message, raw: bytes, draining: bool) -> None:
        if message.get("id") is None:  # the hub could not read so much of a message
            self._tell_host(raw)
            return
        key = messages.key(message.get("id"))
        asked = self._silent.pop(key, None)
        if asked is not None:
            self._learn(asked, message)
            return
        asked = self._waiting.get(key)
        if asked is None:
            return  # the host has cancelled it, or was told otherwise
        shutting_down = messages.text(message, "error", "data", "reason") == "SHUTTING_DOWN"
        if draining and shutting_down and not asked.refused:  # else it is of a hub behind this one
            asked.refused, asked.again, asked.place = True, False, 0
            return
        self._forget(key)
        self._learn(asked, message)
        self._tell_host(raw)

    def _learn(self, asked: UnansweredRequest, message: Message) -> None:
        """Note what a response says of later ones."""
        result = messages.member(message, "result")
        if not isinstance(result, dict):
            return
        if asked.method in REMEMBERED and not messages.text(asked.message, "params", "cursor"):
            self._memory.keep(asked.method, self._revision(asked), result)  # pyright: ignore[reportUnknownArgumentType]
        if asked.method in LISTS:
            self._listed.add(LISTS[asked.method])
        if asked.method in STATE:
            name = messages.text(asked.message, "params", STATE[asked.method])
            self._state.pop(name, None)
            if asked.method != "resources/unsubscribe" and len(self._state) <= MAX_KEPT:
                self._state[name] = asked

    # While it is away

    def tire(self) -> None:
        """Stop waiting for a hub where something is known without it: the handshake, and the tools."""
        if self._send is not None:
            return
        for key, asked in list(self._waiting.items()):
            if asked.method in REMEMBERED:
                known = self._known(asked)
                if known is None and asked.method != TOOLS:
                    known = messages.result(asked.id, self._made_up(asked))
                if known is not None:
                    self._forget(key)
                    self._tell_host(known)

    def give_up(self, why: str) -> None:
        """Tell the host of each request that the hub cannot be asked, but for those that only wait for news."""
        for key, asked in list(self._waiting.items()):
            if asked.method not in (LISTEN, HANDSHAKE, DISCOVER):
                if asked.method in LISTS:
                    self._outdated(asked)
                self._forget(key)
                self._refuse(asked, HUB_AWAY, why)

    def _known(self, asked: UnansweredRequest) -> bytes | None:
        """Return the response to a request by what the hub said last."""
        if messages.text(asked.message, "params", "cursor"):
            return None
        found = self._memory.recall(asked.method, self._revision(asked))
        if found is None:
            return None
        if asked.method in LISTS:
            self._outdated(asked)
        return messages.result(asked.id, found)

    def _outdated(self, asked: UnansweredRequest) -> None:
        """Note that the host has another list than the next hub, or none."""
        self._listed.add(LISTS[asked.method])
        self._tell_changes = True

    def _made_up(self, asked: UnansweredRequest) -> Message:
        about = {**MADE_UP, "serverInfo": {**MADE_UP["serverInfo"], "version": self._version}}
        if asked.method == HANDSHAKE:
            wanted = messages.text(asked.message, "params", "protocolVersion")
            return {"protocolVersion": wanted if wanted in WITH_HANDSHAKE else WITH_HANDSHAKE[0], **about}
        meta = {"io.modelcontextprotocol/serverInfo": about.pop("serverInfo")}
        cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return {"supportedVersions": [*WITHOUT_HANDSHAKE, *WITH_HANDSHAKE], **about, **cached, "_meta": meta}

    # What is common

    def _revision(self, asked: UnansweredRequest) -> str:
        """Return the revision that a request is of: it says so itself, or the handshake did."""
        stateless = messages.text(asked.message, "params", "_meta", messages.REVISION)
        said = asked if asked.method == HANDSHAKE else self._hello
        return stateless or (messages.text(said.message, "params", "protocolVersion") if said else "")

    def _lists_changed(self) -> None:
        """Tell the host that the lists it has may be another hub's."""
        listening = [each for each in self._waiting.values() if each.method == LISTEN]
        for name in sorted(self._listed):
            method = f"notifications/{name}/list_changed"
            if self._hello is not None:
                self._tell_host(messages.notification(method))
            for each in listening:
                if messages.member(each.message, "params", "notifications", f"{name}ListChanged") is True:
                    self._tell_host(messages.notification(method, {"_meta": {messages.SUBSCRIPTION: each.id}}))

    def _wait(self, key: Key, asked: UnansweredRequest) -> None:
        self._waiting[key] = asked
        self._none_waiting.clear()
        self._waiting_bytes += len(asked.raw)

    def _forget(self, key: Key) -> None:
        asked = self._waiting.pop(key, None)
        if asked is not None:
            self._waiting_bytes -= len(asked.raw)
        if not self._waiting:
            self._none_waiting.set()

    def _refuse(self, asked: UnansweredRequest, code: int, why: str) -> None:
        self._tell_host(messages.error(asked.id, code, why))

    def _too_long(self, raw: bytes) -> str:
        return f"the message is {len(raw)} bytes long; the hub takes {self._max_message_bytes}"
