"""Messages that hosts send, of every kind and revision; many of them wrong."""

from collections.abc import Iterable
from typing import Any, cast

from .chance import Chance
from .payloads import PAGE, PARAMS, QUESTIONS

HANDSHAKE, STATELESS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"), "2026-07-28"
ENVELOPE = "io.modelcontextprotocol/"
TASKS = ("tasks/get", "tasks/result", "tasks/list", "tasks/update", "tasks/cancel")
LISTS = ("resources/list", "prompts/list")
METHODS = (*PARAMS, *TASKS, *LISTS, "server/discover", "initialize", "subscriptions/listen", "x")
NOTIFICATIONS = ("notifications/cancelled", "notifications/initialized", "notifications/roots/list_changed", "x")
CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
WITH_TASKS: dict[str, Any] = {**CAPABILITIES, "extensions": {f"{ENVELOPE}tasks": {}}}
WITH_APPS: dict[str, Any] = {
    **CAPABILITIES,
    "extensions": {f"{ENVELOPE}ui": {"mimeTypes": ["text/html;profile=mcp-app"]}},
}
INTERNAL = -32603
"""The code of an error that nobody foresaw."""


def request(chance: Chance, method: str, params: Any) -> dict[str, Any]:
    """A request; its id is sometimes none."""
    id_ = chance.scalar() if chance.one_in(10) else chance.of((chance.upto(1_000_000), f"r{chance.upto(1_000_000)}"))
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def handshake(chance: Chance, revision: str) -> dict[str, Any]:
    """What begins a session."""
    info = {"name": chance.text(), "version": chance.text()} if chance.one_in(2) else {"name": "x", "version": "1"}
    able = chance.of((CAPABILITIES, WITH_APPS))
    params = {"protocolVersion": revision, "capabilities": able, "clientInfo": info}
    return request(chance, "initialize", chance.maybe_changed(params))


def asked(chance: Chance) -> dict[str, Any]:
    """A request of any method."""
    method = chance.of(METHODS)
    params = dict(PARAMS.get(method, {}))
    if method == "tools/call" and chance.one_in(3):
        params["name"] = chance.of(("toy__echo", "asker__echo"))
    if method == "resources/read" and chance.one_in(2):
        params["uri"] = chance.of(("ui://toy+x", "UI://asker+", "ui://x", "skill://toy/x", f"ui://{chance.text()}"))
    if method == "tools/call" and chance.one_in(2):
        params["ask"] = [chance.maybe_changed(chance.of((*QUESTIONS, {"method": "x", "params": PAGE})))]
    if method == "tools/call" and chance.one_in(4):
        params["task"] = chance.of(({}, {"ttl": chance.value()}, chance.value()))
    if chance.one_in(3):
        params["_meta"] = {"progressToken": chance.scalar(), "traceparent": chance.text()}
    return request(chance, method, chance.maybe_changed(params) if chance.one_in(2) else params)


def in_session(chance: Chance, questions: Iterable[str] = ()) -> Any:
    """A message of a session: a notification, a response or a request. `questions` are ids of what hosts were asked."""
    match chance.upto(9):
        case 0:
            params = chance.maybe_changed({"requestId": chance.upto(3), "reason": "x"})
            return {"jsonrpc": "2.0", "method": chance.of(NOTIFICATIONS), "params": params}
        case 1:
            answer = chance.maybe_changed({"action": "accept", "content": {"name": "a@b.c"}})
            id_ = chance.of((chance.upto(5), *questions))
            return chance.maybe_changed({"jsonrpc": "2.0", "id": id_, "result": answer})
        case 2:
            error = chance.maybe_changed({"code": -32000, "message": chance.text()})
            return {"jsonrpc": "2.0", "id": chance.of((chance.upto(5), *questions)), "error": error}
        case _:
            return chance.maybe_changed(asked(chance))


def enveloped(chance: Chance) -> tuple[dict[str, Any], str]:
    """A request that says itself who asks, and the revision that it says."""
    message = asked(chance)
    version = STATELESS if not chance.one_in(10) else chance.text()
    meta = {
        f"{ENVELOPE}protocolVersion": version,
        f"{ENVELOPE}clientCapabilities": chance.of((CAPABILITIES, WITH_TASKS, WITH_APPS)),
        f"{ENVELOPE}clientInfo": {"name": "x", "version": "1"},
    }
    given = as_object(message["params"])
    params = {**given, "_meta": chance.maybe_changed({**meta, **as_object(given.get("_meta"))})}
    if chance.one_in(8):
        params |= {"requestState": chance.text(), "inputResponses": chance.value()}
    return {**message, "params": params}, version


def as_object(value: object) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
