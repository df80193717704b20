"""JSON inside requests: params of calls, answers to questions, roots, specs of servers."""

import json
from pathlib import Path
from typing import Any

import grpc

from hubbub.v1 import call_pb2, inbox_pb2, server_pb2

from .chance import Chance
from .subject import Finding, Subject, Tally, drive, outcome, peer, subject

PATIENCE_S = 45.0
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 9, "format": "email"},
        "age": {"type": "integer", "minimum": 0, "maximum": 9, "default": 3},
        "fine": {"type": "boolean"},
        "size": {"type": "string", "enum": ["s", "m"]},
        "many": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["a", "b"]}},
    },
    "required": ["name"],
}
TEXT = {"type": "text", "text": "x"}
TOOL = {"name": "t", "inputSchema": {"type": "object"}}
SAMPLING = {"messages": [{"role": "user", "content": TEXT}], "maxTokens": 3, "tools": [TOOL]}
PAGE = {"message": "Go", "mode": "url", "url": "https://a.b/", "elicitationId": "e"}
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}},
    {"method": "elicitation/create", "params": PAGE},
    {"method": "sampling/createMessage", "params": SAMPLING},
    {"method": "roots/list", "params": {}},
)  # fmt: skip
ANSWERS: tuple[dict[str, Any], ...] = (
    {"name": "a@b.c", "age": 3, "fine": True, "size": "s", "many": ["a"]},
    {"action": "accept", "content": {"name": "a@b.c"}, "_meta": {"a": 1}},
    {"role": "assistant", "model": "m", "content": TEXT, "_meta": {"a": 1}},
    {"role": "assistant", "model": "m", "content": [{"type": "tool_use", "id": "1", "name": "t", "input": {}}]},
    {"roots": [{"uri": "file:///x", "name": "n"}], "_meta": {}},
)
PARAMS: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "echo", "arguments": {"text": "x"}, "_meta": {"progressToken": 1}},
    "tools/list": {"cursor": "x"},
    "prompts/get": {"name": "p", "arguments": {"a": "b"}},
    "resources/read": {"uri": "file:///x"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}},
    "logging/setLevel": {"level": "info"},
    "tasks/get": {"taskId": "T"},
    "ping": {},
}
ROOTS = [{"uri": "file:///x", "name": "n"}]


async def payloads(tally: Tally, seed: int, directory: Path) -> None:
    """Tries JSON of any shape wherever JSON goes through the hub."""
    quick = {"call_timeout_s": 2, "answer_timeout_s": 10, "receiver_task_ttl_s": 10, "max_in_flight": 8}
    servers = {
        "toy": peer("2026-07-28", **quick),
        "asker": peer("2025-11-25", **quick),
    }
    async with subject(directory, servers, {"allow_hosts": ["127.0.0.1"]}) as tried:
        await tried.hub.connected(*servers)
        await tried.note_rest()
        await drive(tally, _Trial(tried, seed).one, width=8, halfway=tried.note_memory)
        await tried.hub.client.servers.remove("added")
        await tried.judge(tally)


class _Trial:
    def __init__(self, tried: Subject, seed: int) -> None:
        self._tried = tried
        self._seed = seed
        self._open: list[str] = []

    async def one(self, number: int) -> str:
        """One document in one place."""
        chance = Chance(self._seed, "payloads", number)
        match chance.upto(9):
            case 0 | 1 | 2:
                return await self._call(chance)
            case 3:
                return await self._ask(chance)
            case 4:
                return await self._roots(chance)
            case 5:
                return await self._add(chance)
            case _:
                return await self._answer(chance)

    async def _call(self, chance: Chance) -> str:
        method = chance.of(sorted(PARAMS))
        params = chance.document(chance.maybe_changed(PARAMS[method]))
        spec = call_pb2.CallSpec(server="toy", method=method, params=params)
        return await self._try("CallService/CallMethod", call_pb2.CallMethodRequest(spec=spec))

    async def _ask(self, chance: Chance) -> str:
        """Has the server ask something; its questions go through as they are."""
        questions = [chance.maybe_changed(chance.of(QUESTIONS)) for _ in range(1 + chance.upto(3))]
        params = json.dumps({"name": "echo", "ask": questions}).encode()
        spec = call_pb2.CallSpec(server="asker", method="tools/call", params=params)
        return await self._try("CallService/CallMethod", call_pb2.CallMethodRequest(spec=spec))

    async def _roots(self, chance: Chance) -> str:
        request = server_pb2.SetRootsRequest(name="asker", roots=_some_roots(chance))
        return await self._try("ServerService/SetRoots", request)

    async def _add(self, chance: Chance) -> str:
        endpoint = server_pb2.HttpEndpoint(url="http://127.0.0.1:9/", headers={chance.text(): chance.text()})
        spec = server_pb2.ServerSpec(name="added", http=endpoint, roots=_some_roots(chance))
        spec.tools.deny.append(chance.text())
        added = server_pb2.AddServerRequest(spec=spec)
        if (said := await self._try("ServerService/AddServer", added)).startswith("ALREADY"):
            said = await self._try("ServerService/UpdateServer", server_pb2.UpdateServerRequest(spec=spec))
        return said

    async def _answer(self, chance: Chance) -> str:
        if not self._open:
            filter_ = inbox_pb2.PendingRequestFilter(states=[inbox_pb2.PENDING_REQUEST_STATE_OPEN])
            listed = await self._tried.channel.unary_unary(
                "/hubbub.v1.InboxService/ListPendingRequests",
                response_deserializer=inbox_pb2.ListPendingRequestsResponse.FromString,
            )(inbox_pb2.ListPendingRequestsRequest(filter=filter_).SerializeToString(), metadata=self._tried.metadata)
            self._open = [each.id for each in listed.pending_requests]
            if not self._open:
                return await self._ask(chance)
        request = inbox_pb2.AnswerPendingRequestRequest(id=self._open.pop())
        document = chance.document(chance.maybe_changed(chance.of(ANSWERS)))
        match chance.upto(5):
            case 0:
                request.text = chance.text()
            case 1:
                request.reject.message = chance.text()
            case 2 | 3:
                request.accept.content = document
            case _:
                request.result = document
        return await self._try("InboxService/AnswerPendingRequest", request)

    async def _try(self, rpc: str, request: Any) -> str:
        raw = request.SerializeToString()
        try:
            await self._tried.channel.unary_unary(f"/hubbub.v1.{rpc}")(
                raw, metadata=self._tried.metadata, timeout=PATIENCE_S
            )
        except grpc.aio.AioRpcError as exc:
            if exc.code() is grpc.StatusCode.DEADLINE_EXCEEDED and rpc_has_no_end(exc):
                raise Finding(f"no end within {PATIENCE_S} s of {rpc} {raw!r}") from None
            return outcome(exc, f"{rpc} {raw!r}")
        return f"{rpc.partition('/')[2]} OK"


def rpc_has_no_end(error: grpc.aio.AioRpcError) -> bool:
    """Whether it was the caller who ended it; the hub's own word of a call that took too long has details."""
    return not any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())


def _some_roots(chance: Chance) -> server_pb2.Roots:
    """Roots of which each may be any document."""
    given = [chance.document(chance.maybe_changed(root)) for root in ROOTS]
    return server_pb2.Roots(fixed=server_pb2.Roots.Fixed(roots=given))
