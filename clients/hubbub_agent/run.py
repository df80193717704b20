"""The agent's loop: take assignments from the hub, decide by the rules, answer."""

import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2

from hubbub_agent import chat, command
from hubbub_agent.audit import Audit
from hubbub_agent.limits import NOTHING, Meter, OverLimit
from hubbub_agent.rules import Answer, AnswerProblem, Rule, Rulebook
from hubbub_client import payload
from hubbub_client.errors import DeadlineExceeded, FailedPrecondition, HubbubError, NotFound, Unavailable
from hubbub_client.hub import Hub
from hubbub_client.payload import as_object
from hubbub_client.records import PendingRequest
from hubbub_client.watch_events import Removed, Synced, Upsert
from hubbub_client.work import SETTLED

GRACE_S = 30.0
"""Grace for work under way after a signal, seconds."""

PAUSES_S = (0.2, 1.0, 3.0)
"""Pauses between attempts to deliver an answer, seconds; `answer_id` makes repeats harmless."""

REFUSAL = "No answer could be found to this request"


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer, and the usage that it took."""

    answer: Answer | None
    model: str | None = None
    tokens: dict[str, int] | None = None
    cost: float | None = None
    why: str | None = None

    @property
    def used(self) -> dict[str, Any]:
        """Return the usage as fields of an audit line."""
        return {"model": self.model, "tokens": self.tokens, "cost": self.cost, "why": self.why}


class Agent:
    """Answers by its rules. `say` gets messages for the operator."""

    def __init__(self, hub: Hub, rules: Rulebook, audit: Audit, say: Callable[[str], None]) -> None:
        self._hub = hub
        self._rules = rules
        self._audit = audit
        self._say = say
        self._meter = Meter(rules.limits)
        self._limit: str | None = None
        self._settled = anyio.Event()
        self._clients: dict[str, httpx2.AsyncClient] = {}
        self._busy = 0
        self._quiet = anyio.Event()
        self._ending = False

    @classmethod
    @asynccontextmanager
    async def open(cls, hub: Hub, rules: Rulebook, audit: Audit, say: Callable[[str], None]) -> AsyncGenerator["Agent"]:
        """Open an agent with the HTTP client for its models."""
        agent = cls(hub, rules, audit, say)
        try:
            for name, model in rules.chat.items():
                loopback = urlsplit(model.base_url).hostname in ("127.0.0.1", "::1", "localhost")
                # A proxy of the environment must not get requests to a loopback address.
                agent._clients[name] = httpx2.AsyncClient(trust_env=not loopback)
            yield agent
        finally:
            with anyio.CancelScope(shield=True):
                for client in agent._clients.values():
                    await client.aclose()

    async def run(self, stop: anyio.Event, *, dry_run: bool = False, once: bool = False) -> None:
        """Work until stopped, and finish what is under way within GRACE_S; with `once`, handle what is open now.

        A dry run claims and answers nothing, and reports what it would do. Raises HubbubError.
        """
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end, stop, tasks.cancel_scope)
                if dry_run:
                    await self._rehearse_all(once=once)
                elif once:
                    await self._work_once()
                else:
                    await self._hub.inbox.work(
                        self.handle,
                        server=self._rules.server,
                        kinds=self._rules.kinds,
                        capacity=self._rules.capacity,
                    )
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:  # nothing else in it raises
            raise group.exceptions[0] from None

    async def _end(self, stop: anyio.Event, scope: anyio.CancelScope) -> None:
        await stop.wait()
        self._ending = True
        if self._busy:
            with anyio.move_on_after(GRACE_S):
                await self._quiet.wait()
        scope.cancel()

    async def _work_once(self) -> None:
        found = await self._hub.inbox.list(server=self._rules.server, kinds=self._rules.kinds, states=["open"])
        room = anyio.Semaphore(self._rules.capacity)
        async with anyio.create_task_group() as tasks:
            for request in reversed(found):
                if request.claim is None:
                    await room.acquire()
                    tasks.start_soon(self._claim_and_handle, request, room)

    async def _claim_and_handle(self, request: PendingRequest, room: anyio.Semaphore) -> None:
        try:
            found = self._rules.find(request)
            if found is None or found[1].action == "leave" or self._ending:
                self._audit.note(request, found[0] if found else None, "left")
                return
            claim_id = secrets.token_urlsafe(18)
            claimed = await self._hub.inbox.claim(request.id, found[1].timeout_s + GRACE_S, claim_id=claim_id)
            try:
                await self.handle(claimed)
            finally:
                with anyio.CancelScope(shield=True), suppress(FailedPrecondition, NotFound):
                    await self._hub.inbox.release(request.id, claim_id)  # unless it is answered
        except HubbubError as error:
            self._audit.note(request, None, "refused", why=error.reason)
        finally:
            room.release()

    async def _rehearse_all(self, *, once: bool) -> None:
        seen: set[str] = set()
        watching = self._hub.inbox.watch(server=self._rules.server, kinds=self._rules.kinds, states=["open"])
        async with aclosing(watching) as events:
            async for event in events:
                if isinstance(event, Upsert) and event.record.id not in seen:
                    seen.add(event.record.id)
                    self._rehearse(event.record)
                elif isinstance(event, Removed):
                    seen.discard(event.id)
                elif isinstance(event, Synced) and once:
                    return

    def _rehearse(self, request: PendingRequest) -> None:
        found = self._rules.find(request)
        if found is None or found[1].action == "leave":
            self._audit.note(request, found[0] if found else None, "left")
        else:
            name, rule = found
            self._audit.note(request, name, "would", action={rule.action: getattr(rule, rule.action)})

    # One request

    async def handle(self, request: PendingRequest) -> None:
        """Answer a claimed pending request, or leave it to people."""
        if self._ending:
            return
        found = self._rules.find(request)
        if found is None or found[1].action == "leave":
            self._audit.note(request, found[0] if found else None, "left")
            return
        name, rule = found
        if (limit := self._over_limit()) is not None:
            self._audit.note(request, name, "left", why=limit)
            return
        self._meter.answering(time.monotonic())
        if not self._busy:
            self._quiet = anyio.Event()
        self._busy += 1
        try:
            await self._answer(request, name, rule)
        except anyio.get_cancelled_exc_class():
            self._audit.note(request, name, "lost")
            raise
        finally:
            self._busy -= 1
            if not self._busy:
                self._quiet.set()

    async def _answer(self, request: PendingRequest, name: str, rule: Rule) -> None:
        decision = Decision(None)
        try:
            try:
                decision = await self._decide(request, rule)
            except AnswerProblem as problem:
                if rule.on_error != "reject":
                    raise
                self._say(f"{request.id}: {problem}")
                decision = Decision({"reject": REFUSAL})
            if decision.answer is None:
                self._audit.note(request, name, "left", **decision.used)
                return
            answer_id = await self._give(request, decision.answer)
            self._audit.note(
                request, name, "answered", answer=next(iter(decision.answer)), answer_id=answer_id, **decision.used
            )
        except (AnswerProblem, HubbubError, ValueError) as problem:
            lost = isinstance(problem, HubbubError) and problem.reason in SETTLED
            used = {**decision.used, "why": _why(problem)}
            self._audit.note(request, name, "refused" if lost else "failed", **used)
            if not lost:
                self._say(f"{request.id} is left to people: {problem}")

    async def _decide(self, request: PendingRequest, rule: Rule) -> Decision:
        if rule.command is not None:
            return Decision(await command.run(rule.command, request, rule.timeout_s, self._say))
        if rule.chat is not None:
            return await self._ask(rule.chat, request, rule.timeout_s)
        return Decision(rule.answer)

    async def _ask(self, name: str, request: PendingRequest, timeout_s: float) -> Decision:
        """Ask a model within the limits: reserve the most that it may take, and settle with the reported usage."""
        model = self._rules.chat[name]
        body = chat.completion(model, as_object(request.request))
        most = chat.most(body).use(model)
        try:
            while (reserved := self._meter.reserve(most, time.monotonic())) is None:
                await self._settled.wait()
        except OverLimit as limit:
            self._reached(str(limit))
            return Decision(None, why=str(limit))
        used = most
        try:
            reply = await chat.ask(self._clients[name], model, body, timeout_s)
            if reply.tokens is not None:
                used = reply.tokens.use(model)
        except chat.NotAsked:
            used = NOTHING
            raise
        finally:
            self._meter.settle(reserved, used, time.monotonic())
            self._settled.set()
            self._settled = anyio.Event()
        tokens = {"input": reply.tokens.input, "output": reply.tokens.output} if reply.tokens is not None else None
        return Decision(reply.answer, reply.model, tokens, used.cost or None)

    async def _give(self, request: PendingRequest, answer: Answer) -> str:
        """Deliver an answer, again if its confirmation was lost; return the answer's id."""
        claim_id = request.claim.id if request.claim is not None else None
        answer_id = f"agent_{hashlib.sha256(request.id.encode() + payload.dumps(answer)).hexdigest()[:32]}"
        for pause_s in (*PAUSES_S, None):
            try:
                await self._hub.inbox.answer(request.id, **answer, claim_id=claim_id, answer_id=answer_id)
                break
            except (Unavailable, DeadlineExceeded):
                if pause_s is None:
                    raise
            await anyio.sleep(pause_s)
        return answer_id

    def _over_limit(self) -> str | None:
        limit = self._meter.over(time.monotonic())
        if limit is None:
            self._limit = None
        else:
            self._reached(limit)
        return limit

    def _reached(self, limit: str) -> None:
        if limit != self._limit:
            self._say(f"{limit} is reached: requests are left to people until it allows more")
        self._limit = limit


def _why(problem: Exception) -> str:
    return problem.reason if isinstance(problem, HubbubError) else str(problem)
