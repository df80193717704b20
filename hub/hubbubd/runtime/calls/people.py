"""Questions of programs to people, as calls of a server within the hub: durable, held and answered like all calls.

    `hubbub/ask` ──> a round that asks for a form ──> its answer        tools/call ──> judged by the rules ──> "allow"

The server has any tool that a host names, so that approval rules apply to it; people are asked about a tool that no
rule matches. The server executes nothing: a tool call that reaches it is allowed, and the host makes the call itself.
"""

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.config.sections.mcp import PEOPLE
from hubbubd.core.jsonrpc import METHOD_NOT_FOUND
from hubbubd.errors import Fault, PeerError
from hubbubd.runtime.calls.queue import ServerQueue
from hubbubd.runtime.calls.registry import Calls
from hubbubd.telemetry.trace import Span
from hubbubd.upstream.ports import Era, Hello, ProgressUpdate

HOST: Final = PEOPLE
"""The name of the server."""

ASK: Final = "hubbub/ask"
"""The method that asks people a question; its arguments are the params of an elicitation."""

_INPUT_KEY: Final = "answer"
_HELLO: Final = Hello(
    protocol_version="2026-07-28", era=Era.STATELESS, server_info={"name": HOST, "version": "0"}, capabilities={}
)


@lru_cache(1)
def people_config() -> ServerConfig:
    """Return the configuration of the server HOST. Its command is never started: the hub is the server."""
    return ServerConfig(name=HOST, command="hubbub", confirm=("*",), resume=True, max_in_flight=1000)


def open_people_queue(calls: Calls) -> ServerQueue:
    """Open the queue of the server HOST and return it; its calls from before a restart are resumed."""
    queue = calls.open_queue(people_config())
    queue.closed = False
    queue.set_link(PeopleLink())
    return queue


class PeopleLink:
    """The connection to the server HOST, which is this hub itself. Implements `McpLink`."""

    log_level: str | None = None

    @property
    def hello(self) -> Hello:
        """The server's introduction."""
        return _HELLO

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None,
        *,
        call_id: str | None = None,
        on_progress: Callable[[ProgressUpdate | None], None] | None = None,
        span: Span | None = None,
    ) -> dict[str, Any]:
        """Return the result of a call. Raises PeerError for other methods.

        `tools/call` always returns "allow", as a call gets here only after rules or people have allowed it.
        `hubbub/ask` returns that it needs the input of a person; sent again with the input, it returns the input.
        """
        fields = params or {}
        match method:
            case "tools/call":
                decision = {"behavior": "allow", "updatedInput": fields.get("arguments", {})}
                return _complete_result(payload.dumps(decision).decode())
            case "hubbub/ask" if "inputResponses" in fields:
                return _render_answer(fields["inputResponses"].get(_INPUT_KEY))
            case "hubbub/ask":
                question = {"method": "elicitation/create", "params": fields["arguments"]}
                return {"resultType": "input_required", "inputRequests": {_INPUT_KEY: question}}
            case _:
                raise PeerError(METHOD_NOT_FOUND, f"{HOST} has no method {method}")

    async def notify(self, method: str, params: dict[str, Any] | None) -> None:
        """Drop a notification: the hub needs none from itself."""

    async def listen(self, notifications: dict[str, Any], on_acknowledged: Callable[[dict[str, Any]], None]) -> None:
        """Never end, and never call `on_acknowledged`: nothing changes here that could be announced."""
        await asyncio.Event().wait()

    async def probe(self, *, by_list: bool = False) -> None:
        """Return at once: the server is in the hub, so it is always there."""

    async def wait_lost(self) -> Fault:
        """Never return: the server is there as long as the hub is."""
        await asyncio.Event().wait()
        raise AssertionError

    def missing_response_hint(self) -> str | None:
        """Return None: no response gets lost within the hub."""
        return None

    def stderr_tail(self) -> tuple[str, ...]:
        """Return nothing: the server has no process of its own."""
        return ()


def _render_answer(answer: object) -> dict[str, Any]:
    """Return the result of a tool call with a person's answer, as JSON and text; an error unless they accept."""
    fields = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    meta = cast("dict[str, Any]", fields.get("_meta") or {})
    response = {key: fields[key] for key in ("action", "content") if key in fields}
    match fields.get("action"):
        case "accept":
            return {
                **_complete_result(payload.dumps(response.get("content", {})).decode()),
                "structuredContent": response,
            }
        case "decline":
            text = "A person has seen the question and declined to answer it. Do not ask again the same."
        case _ if (reason := meta.get("hubbub/reason")) is not None:
            text = f"Nobody answered: {reason}."
        case _:
            text = "A person has closed the question without an answer."
    return {**_complete_result(text), "structuredContent": response, "isError": True}


def _complete_result(text: str) -> dict[str, Any]:
    """Return the result of a tool call, as MCP has it, with one text."""
    return {"resultType": "complete", "content": [{"type": "text", "text": text}]}
