"""A scripted server behind the runtime's own contract (`upstream.ports`): it does what a test tells it to."""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup

from hubbubd.config import Confinement, ServerConfig
from hubbubd.errors import Category, Fault, PeerError, UpstreamError
from hubbubd.telemetry.trace import Span
from hubbubd.telemetry.tracer import OFF, Tracer
from hubbubd.upstream.ports import Era, Hello, Inbound, InboundReply, InboundRequest, ProgressUpdate, ReplyError

Outcome = dict[str, Any]

PATIENCE_S = 7 * 86400.0
"""Virtual seconds that a server waits for an answer, so that a test which waits for ever fails instead."""


def fault(code: str, category: Category = Category.CONNECTION, *, retryable: bool = True, **details: Any) -> Fault:
    """A fault as upstream makes them."""
    return Fault(code=code, category=category, message=f"it was {code}", retryable=retryable, details=details)


LOST = fault("CONNECTION_LOST")
REFUSED = fault("CONNECTION_REFUSED")
SESSION_LOST = fault("SESSION_LOST", Category.TRANSPORT)


@dataclass
class Question:
    """Something the server asks."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    reply: Outcome | None = None
    error: ReplyError | None = None
    taken_back: bool = False

    def withdraw(self) -> None:
        """The server takes it back."""
        self.taken_back = True
        self.scope.cancel()

    async def answered(self) -> Outcome:
        """The result, once it is there. Raises the error when that came instead."""
        with anyio.fail_after(PATIENCE_S):
            await self.done.wait()
        if self.error is not None:
            raise self.error
        assert self.reply is not None, "neither a result nor an error came"
        return self.reply


@dataclass
class Sent:
    """A call that has reached the server."""

    peer: "Peer"
    link: "PeerLink"
    method: str
    params: dict[str, Any]
    call_id: str | None
    on_progress: Callable[[ProgressUpdate | None], None] | None
    at: float
    cancelled: bool = False

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """The server reports progress."""
        assert self.on_progress is not None
        self.on_progress(ProgressUpdate(value, total, message))

    def work(self) -> None:
        """The server notifies of something else that names the call."""
        assert self.on_progress is not None
        self.on_progress(None)

    def ask(self, method: str, params: dict[str, Any], *, on_wire: bool = False) -> Question:
        """The server asks something in the course of the call; `on_wire` shows which call."""
        return self.link.ask(method, params, call_id=self.call_id if on_wire else None)


Behaviour = Callable[[Sent], Awaitable[Outcome]]


@dataclass
class Subscription:
    """A stream of notifications that the hub has opened."""

    wanted: dict[str, Any]
    acknowledge: Callable[[dict[str, Any]], None]
    ended: anyio.Event = field(default_factory=anyio.Event)


class PeerLink:
    """One connection; implements `Link`."""

    def __init__(self, peer: "Peer", inbound: Inbound, era: Era, tasks: TaskGroup) -> None:
        self.peer = peer
        self.inbound = inbound
        self.notified: list[tuple[str, dict[str, Any] | None]] = []
        self.undeliverable: str | None = None
        self.receipts: anyio.Event | None = None
        """Once set, answers are acknowledged; None for at once."""
        self.probes = self.lists = 0
        self.silent = False
        self.log_level: str | None = None
        self.lost: Fault | None = None
        self._era = era
        self._hello: Hello | None = None
        self._tasks = tasks
        self._gone = anyio.Event()
        self._open: set[anyio.CancelScope] = set()

    @property
    def hello(self) -> Hello:
        hello = Hello(
            protocol_version="2026-07-28" if self._era is Era.STATELESS else "2025-11-25",
            era=self._era,
            server_info=dict(self.peer.info),
            capabilities=self.peer.capabilities,
            instructions=self.peer.instructions,
            pid=7,
        )
        # One object for a connection, as a link has, unless a test has changed the peer.
        if self._hello is None or hello != self._hello:
            self._hello = hello
        return self._hello

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None,
        *,
        call_id: str | None = None,
        on_progress: Callable[[ProgressUpdate | None], None] | None = None,
        span: Span | None = None,
    ) -> Outcome:
        sent = Sent(self.peer, self, method, params or {}, call_id, on_progress, anyio.current_time())
        # What the hub itself wants to know has no call.
        (self.peer.fetches if call_id is None else self.peer.sent).append(sent)
        behaviour = self.peer.listing if call_id is None else self.peer.behaviour
        with anyio.CancelScope() as scope, self._told(span):
            self._open.add(scope)
            try:
                if self.lost is None:
                    return await behaviour(sent)
            except anyio.get_cancelled_exc_class():
                sent.cancelled = not scope.cancel_called
                raise
            finally:
                self._open.discard(scope)
        raise UpstreamError(self.lost or LOST)

    @contextmanager
    def _told(self, span: Span | None) -> Generator[None]:
        try:
            yield
        finally:
            if span is not None:
                self.peer.tracer.export_span(span, self.peer.tracer.now())

    async def notify(self, method: str, params: dict[str, Any] | None) -> None:
        self.notified.append((method, params))

    async def listen(self, notifications: dict[str, Any], on_acknowledged: Callable[[dict[str, Any]], None]) -> None:
        subscription = Subscription(notifications, on_acknowledged)
        self.peer.subscriptions.append(subscription)
        with anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                await self.peer.listening(subscription)
                return
            finally:
                self._open.discard(scope)
        raise UpstreamError(self.lost or LOST)

    def tell(self, method: str, params: dict[str, Any] | None = None) -> None:
        """The server sends a notification."""
        self.inbound.on_notification(method, params or {}, None)

    async def probe(self, *, by_list: bool = False) -> None:
        self.probes += 1
        if by_list:
            self.lists += 1
        if self.silent or (self.peer.ignores_pings and not by_list):
            await anyio.sleep_forever()
        await self.peer.probing()

    async def wait_lost(self) -> Fault:
        await self._gone.wait()
        assert self.lost is not None
        return self.lost

    def missing_response_hint(self) -> str | None:
        return self.peer.hint

    def stderr_tail(self) -> tuple[str, ...]:
        return ()

    def lose(self, why: Fault = LOST) -> None:
        """The connection goes: what is on the wire fails, and what the server asked is dropped."""
        self.lost = why
        self._gone.set()
        for scope in list(self._open):
            scope.cancel()

    def ask(self, method: str, params: dict[str, Any], *, call_id: str | None = None) -> Question:
        """The server asks something."""
        question = Question()
        self._tasks.start_soon(self._serve, question, method, params, call_id)
        return question

    async def asked(self, method: str, params: dict[str, Any]) -> Outcome:
        """The answer to something the server asks. Raises ReplyError."""
        return await self.ask(method, params).answered()

    async def _serve(self, question: Question, method: str, params: dict[str, Any], call_id: str | None) -> None:
        request = InboundRequest(method=method, params=params, call_id=call_id, withdrawn=lambda: question.taken_back)
        self._open.add(question.scope)
        try:
            with question.scope:
                try:
                    answer: InboundReply | ReplyError = await self.inbound.on_request(request)
                except ReplyError as error:
                    answer = question.error = error
                else:
                    question.reply = answer.result
                if self.receipts is not None:
                    await self.receipts.wait()
                if answer.on_sent is not None:
                    answer.on_sent(self.undeliverable)
        finally:
            self._open.discard(question.scope)
            question.done.set()


async def at_once(sent: Sent) -> Outcome:
    """Answers with what was sent."""
    return {"echo": sent.params}


def after(seconds: float) -> Behaviour:
    """A server that takes its time."""

    async def behaviour(sent: Sent) -> Outcome:
        await anyio.sleep(seconds)
        return await at_once(sent)

    return behaviour


def gives(outcome: Outcome | Exception, *, after_s: float = 0.0, once: anyio.Event | None = None) -> Behaviour:
    """A server that answers each request so, after a while, or once that is set; an exception is raised."""

    async def behaviour(_: Sent) -> Outcome:
        if once is not None:
            await once.wait()
        if after_s:
            await anyio.sleep(after_s)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return behaviour


async def no_lists(sent: Sent) -> Outcome:
    """Knows no lists."""
    raise PeerError(-32601, "Method not found")


async def all_of_it(subscription: Subscription) -> None:
    """Acknowledges all that is wanted, and holds until told to end."""
    subscription.acknowledge(subscription.wanted)
    await subscription.ended.wait()


async def nothing() -> None:
    """Answers a ping."""


async def never(sent: Sent) -> Outcome:
    """Does not answer."""
    await anyio.sleep_forever()
    raise AssertionError


Step = BaseException | float | None
"""What becomes of an attempt to connect: an error, a connection after so many seconds, or one at once."""


class Peer:
    """A server; implements `Connector`. `plan` says what becomes of the next attempts, then they all succeed."""

    def __init__(self, behaviour: Behaviour = at_once, *, era: Era = Era.HANDSHAKE) -> None:
        self.behaviour = behaviour
        self.plan: deque[Step] = deque()
        self.always: Step = None
        self.attempts: list[float] = []
        self.hints: list[Era | None] = []
        self.links: list[PeerLink] = []
        self.sent: list[Sent] = []
        self.closing_s = 0.0
        self.capabilities: dict[str, Any] = {}
        self.instructions: str | None = None
        self.info: dict[str, Any] = {"name": "peer", "version": "1"}
        self.listing: Behaviour = no_lists
        self.fetches: list[Sent] = []
        self.listening: Callable[[Subscription], Awaitable[None]] = all_of_it
        self.probing: Callable[[], Awaitable[None]] = nothing
        self.subscriptions: list[Subscription] = []
        self.era = era
        self.tracer: Tracer = OFF
        self.ignores_pings = False
        self.hint: str | None = None

    @property
    def link(self) -> PeerLink:
        """The newest connection."""
        return self.links[-1]

    @asynccontextmanager
    async def open(self, config: ServerConfig, inbound: Inbound, era: Era | None) -> AsyncGenerator[PeerLink]:
        self.attempts.append(anyio.current_time())
        self.hints.append(era)
        step = self.plan.popleft() if self.plan else self.always
        if isinstance(step, BaseException):
            raise step
        if step is not None:
            with anyio.move_on_after(config.connect_timeout_s) as limit:
                await anyio.sleep(step)
            if limit.cancelled_caught:
                raise UpstreamError(fault("CONNECTION_TIMEOUT", Category.TIMEOUT))
        async with anyio.create_task_group() as tasks:
            link = PeerLink(self, inbound, self.era, tasks)
            self.links.append(link)
            try:
                yield link
            finally:
                if link.lost is None:
                    link.lose()
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(self.closing_s)


class Peers:
    """Several servers by name; implements `Connector`."""

    def __init__(self) -> None:
        self._peers: dict[str, Peer] = {}
        self.secrets: dict[str, dict[str, Any] | None] = {}
        self.confinements: dict[str, Confinement | None] = {}
        """What each server was held to when it was connected last."""

    def __getitem__(self, name: str) -> Peer:
        return self._peers.setdefault(name, Peer())

    def open(self, config: ServerConfig, inbound: Inbound, era: Era | None, confinement: Confinement | None) -> Any:
        self.confinements[config.name] = confinement
        return self[config.name].open(config, inbound, era)

    async def delete_oauth_secrets(self, server: str) -> None:
        """There is nothing to forget."""

    def spec_secrets(self, server: str) -> dict[str, Any] | None:
        return self.secrets.get(server)

    async def store_spec_secrets(self, server: str, secrets: dict[str, Any] | None) -> None:
        self.secrets[server] = secrets

    async def refresh_secrets(self, *servers: str) -> None:
        """Nobody else changes them."""
