"""Endpoints of a hub in virtual time, with scripted hosts before it and scripted servers behind it."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.downstream import (
    EndpointSession,
    HostOutbox,
    HostRequest,
    McpEndpoint,
    McpHost,
    QuestionPolicy,
    ServerView,
)
from hubbubd.downstream.hosts.host import Presence
from hubbubd.downstream.protocol.messages import RequestMessage, ResponseMessage, parse
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from ..runtime.conftest import World, server
from ..runtime.peer import Outcome, Sent
from .conftest import handles

ME = "me"
ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
"""What a host declares that can answer everything."""

REVISIONS = {Era.HANDSHAKE: "2025-11-25", Era.STATELESS: "2026-07-28"}

Answer = dict[str, Any] | Exception | None
"""A result, an error, or None: it never answers."""

Handler = Callable[[str, dict[str, Any]], Awaitable[Answer]]


def principal(name: str = ME) -> Principal:
    """Somebody who may do everything."""
    return Principal(name=name, grants=(Grant(role=Role.ADMIN),), credential=f"token:{name}")


async def never(_method: str, _params: dict[str, Any]) -> Answer:
    """A host whose person thinks for ever."""
    await asyncio.sleep(300 * 86400.0)
    return None


@dataclass
class ScriptedHost:
    """A host at an endpoint: `handler` is its person. It notes what it is asked and told."""

    endpoint: McpEndpoint
    host: McpHost
    handler: Handler = never
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    states: list[str] = field(default_factory=list[str])
    clock: Callable[[], float] = lambda: 0.0
    hold_s: float | None = None
    """For how many seconds its requests say that they are to be held."""
    presence: Presence = field(default_factory=Presence)
    """Whether its connection is there, in revisions with a handshake."""

    def __post_init__(self) -> None:
        self._ids = itertools.count(1)
        self.session = EndpointSession(self.host, self.endpoint, self.clock)

    async def call(self, method: str = "tools/call", **params: Any) -> dict[str, Any]:
        """Make a request and return the response: `{"result": ...}` or `{"error": ...}`."""
        given = params or {"name": "t"}
        return await (self._rounds(method, given) if self.host.stateless else self._with_requests(method, given))

    async def send(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Make one request of a revision without a handshake; return its response."""
        exchange = HostRequest(
            id=next(self._ids),
            method=method,
            params=params,
            host=self.host,
            send=lambda message: self._note(message),
            own_hold_s=self.hold_s,
        )
        return payload.loads(await self.endpoint.serve(exchange))

    async def _rounds(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        sent = params
        while True:
            response = await self.send(method, sent)
            result = response.get("result", {})
            if result.get("resultType") != "input_required":
                return response
            self.states.append(result["requestState"])
            responses: dict[str, Any] = {}
            for key, asked in result["inputRequests"].items():
                self.asked.append((asked["method"], asked["params"]))
                responses[key] = await self.handler(asked["method"], asked["params"])
            sent = {**params, "inputResponses": responses, "requestState": result["requestState"]}

    async def _with_requests(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        outlet = HostOutbox()
        task = self.session.begin(
            RequestMessage(next(self._ids), method, params), outlet, hold_s=self.hold_s, presence=self.presence
        )
        task.add_done_callback(lambda _: outlet.close())
        answering: dict[Any, asyncio.Task[None]] = {}
        try:
            while not (outlet.closed and outlet.is_empty):
                await outlet.wait_for_news()
                for raw in outlet.take_all():
                    message = parse(raw)
                    if isinstance(message, RequestMessage):
                        self.asked.append((message.method, message.params))
                        answering[message.id] = asyncio.create_task(self._answer(message))
                    else:
                        self._note(raw)
                        if (cancelled := answering.get(self.told[-1][1].get("requestId"))) is not None:
                            cancelled.cancel()
            return payload.loads(await task)
        finally:
            task.cancel()
            for each in answering.values():
                each.cancel()

    async def _answer(self, request: RequestMessage) -> None:
        answer = await self.handler(request.method, request.params)
        if isinstance(answer, Exception):
            self.session.receive(ResponseMessage(request.id, None, {"code": -1, "message": str(answer)}))
        else:
            self.session.receive(ResponseMessage(request.id, answer))

    def _note(self, raw: bytes) -> None:
        message = payload.loads(raw)
        self.told.append((message["method"], message["params"]))


class Asking(ServerView):
    """The endpoint of the server `one`, with a policy of its own."""

    def __init__(self, hub: Hub, policy: QuestionPolicy, name: str = "s/one") -> None:
        super().__init__(hub, "one")
        self.name = name
        self._policy = policy

    @property
    def policy(self) -> QuestionPolicy:
        return self._policy


def host_at(
    hub: Hub,
    era: Era = Era.HANDSHAKE,
    handler: Handler = never,
    *,
    policy: QuestionPolicy | None = None,
    capabilities: dict[str, Any] | None = None,
    name: str = ME,
    view: str = "s/one",
) -> ScriptedHost:
    """A host at an endpoint of the server `one`."""
    endpoint = McpEndpoint(hub, Asking(hub, policy or QuestionPolicy(), view), handles(hub))
    host = McpHost(
        principal=principal(name),
        revision=REVISIONS[era],
        info={"name": "a-host", "version": "1.2"},
        capabilities=ABLE if capabilities is None else capabilities,
    )
    return ScriptedHost(endpoint, host, handler, clock=hub.clock.steady)


def answering(answer: Answer, after_s: float = 5.0) -> Handler:
    """A host whose person gives this answer after so many seconds."""

    async def answer_it(_method: str, _params: dict[str, Any]) -> Answer:
        await asyncio.sleep(after_s)
        return answer

    return answer_it


def asks(world: World, era: Era, *questions: tuple[str, dict[str, Any]]) -> list[Any]:
    """Has the server ask these one after the other, in its revision's way; returns the list of what it got."""
    got: list[Any] = []

    async def by_requests(sent: Sent) -> Outcome:
        for method, params in questions:
            try:
                got.append(await sent.ask(method, params).answered())
            except Exception as exc:  # whatever the hub said
                got.append(exc)
        return {"content": [{"type": "text", "text": "done"}]}

    async def by_results(sent: Sent) -> Outcome:
        state = sent.params.get("requestState")
        if state is not None:
            got.append(sent.params["inputResponses"]["q"])
        done = int(state or 0)
        if done == len(questions):
            return {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
        method, params = questions[done]
        return {
            "resultType": "input_required",
            "inputRequests": {"q": {"method": method, "params": params}},
            "requestState": str(done + 1),
        }

    world.peer.era = era
    world.peer.behaviour = by_requests if era is Era.HANDSHAKE else by_results
    return got


@asynccontextmanager
async def connected(world: World, *configs: ServerConfig) -> AsyncGenerator[Hub]:
    """A hub whose server `one` is connected."""
    async with world.hub(*(configs or (server(roots="ask"),))) as hub:
        while not world.peer.links:
            await asyncio.sleep(0.01)
        yield hub
