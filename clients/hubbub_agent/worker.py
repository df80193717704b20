"""The agent's loop: receive assignments from the hub, decide by the rules, answer."""

import hashlib
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

import anyio

from hubbub_agent import program
from hubbub_agent.audit import DecisionAudit
from hubbub_agent.decision import Decision, DecisionFailed, decide, refuse_or_raise
from hubbub_agent.models.budget import ModelBudget
from hubbub_agent.rules.problems import AnswerProblem
from hubbub_agent.rules.rulebook import Answer, Rule, Rulebook, RuleMatch
from hubbub_agent.usage_ledger import UsageLedger
from hubbub_client import payload
from hubbub_client.data.records import PendingRequest
from hubbub_client.data.watch_events import Removed, Synced, Upsert
from hubbub_client.errors import DeadlineExceeded, HubbubError, Unavailable
from hubbub_client.hub import Hub
from hubbub_client.worker import SETTLED

GRACE_S = 30.0
"""Grace for work under way after a signal, seconds."""

PAUSES_S = (0.2, 1.0, 3.0)
"""Pauses between attempts to deliver an answer, seconds; `answer_id` makes repeats harmless."""


class Agent:
    """Answers pending requests by its rules. `report` gets messages for the operator."""

    def __init__(
        self, hub: Hub, rules: Rulebook, audit: DecisionAudit, report: Callable[[str], None], budget: ModelBudget
    ) -> None:
        self._hub = hub
        self._rules = rules
        self._audit = audit
        self._report = report
        self._budget = budget
        # How many requests are being answered; `_idle` is set when the last of them is done.
        self._answering_count = 0
        self._idle = anyio.Event()
        # Whether the agent is to stop: it begins no further answer.
        self._is_stopping = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        hub: Hub,
        rules: Rulebook,
        audit: DecisionAudit,
        report: Callable[[str], None],
        ledger: UsageLedger | None = None,
    ) -> AsyncGenerator["Agent"]:
        """Open an agent with its models; `ledger` stores its usage over restarts. Raises LedgerProblem."""
        async with ModelBudget.open(rules, report, ledger) as budget:
            yield cls(hub, rules, audit, report, budget)

    async def run(self, stop: anyio.Event, *, dry_run: bool = False, once: bool = False) -> None:
        """Answer requests until stopped; then finish within GRACE_S the answers that are under way.

        With `once`, handle the requests that are open now, and return. A dry run claims and answers nothing, and
        records what it would do. Raises HubbubError.
        """
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._finish_and_cancel, stop, tasks.cancel_scope)
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
        except ExceptionGroup as group:  # it holds one exception, since `_finish_and_cancel` raises none
            raise group.exceptions[0] from None

    async def _finish_and_cancel(self, stop: anyio.Event, scope: anyio.CancelScope) -> None:
        """Wait until the agent is stopped; let no new answer begin, wait for those under way, then cancel `scope`.

        The wait for answers is GRACE_S at most.
        """
        await stop.wait()
        self._is_stopping = True
        if self._answering_count:
            with anyio.move_on_after(GRACE_S):
                await self._idle.wait()
        scope.cancel()

    async def _work_once(self) -> None:
        """Handle the requests that are open now and that nobody has claimed, the oldest first."""
        open_requests = await self._hub.inbox.list(server=self._rules.server, kinds=self._rules.kinds, states=["open"])
        capacity = anyio.Semaphore(self._rules.capacity)
        async with anyio.create_task_group() as tasks:
            for request in reversed(open_requests):
                if request.claim is None:
                    await capacity.acquire()
                    tasks.start_soon(self._claim_and_handle, request, capacity)

    async def _claim_and_handle(self, request: PendingRequest, capacity: anyio.Semaphore) -> None:
        """Answer a request under a claim (a short exclusive right to answer), or leave it to people.

        In both cases the slot of the request in `capacity` is freed, and a failure goes into the audit file.
        """
        try:
            match = self._rules.find(request)
            if match is None or match.rule.leaves_to_people or self._is_stopping:
                self._leave_to_people(request, match)
                return
            claim_id = secrets.token_urlsafe(18)
            claimed = await self._hub.inbox.claim(request.id, match.rule.timeout_s + GRACE_S, claim_id=claim_id)
            try:
                await self.handle(claimed)
            finally:
                # The hub refuses to release the claim of an answered request. If no hub is reached, the claim lapses.
                with anyio.CancelScope(shield=True), suppress(HubbubError):
                    await self._hub.inbox.release(request.id, claim_id)
        except HubbubError as error:
            self._audit.record_outcome(request, None, "refused" if _is_settled(error) else "failed", why=error.reason)
            if not _is_settled(error):
                self._report(f"{request.id} is left to people: {error.message}")
        finally:
            capacity.release()

    async def _rehearse_all(self, *, once: bool) -> None:
        """Record what the rules would do with each open request, once for each request.

        With `once`, return after the requests that are open now; else go on with new ones until cancelled.
        """
        seen: set[str] = set()
        watch = self._hub.inbox.watch(server=self._rules.server, kinds=self._rules.kinds, states=["open"])
        async with aclosing(watch) as events:
            async for event in events:
                if isinstance(event, Upsert) and event.record.id not in seen:
                    seen.add(event.record.id)
                    self._rehearse(event.record)
                elif isinstance(event, Removed):
                    seen.discard(event.id)
                elif isinstance(event, Synced) and once:
                    return

    def _rehearse(self, request: PendingRequest) -> None:
        """Record what the rules would do with a request, without doing it."""
        match = self._rules.find(request)
        if match is None or match.rule.leaves_to_people:
            self._leave_to_people(request, match)
            return
        rule = match.rule
        # A program or a model is not asked: the audit line has its command or name instead of an answer.
        action = rule.fixed_answer(request) or {rule.action: getattr(rule, rule.action)}
        self._audit.record_outcome(request, match.name, "would", action=action)

    def _leave_to_people(self, request: PendingRequest, match: RuleMatch | None) -> None:
        """Record that people are to answer; report an escalation to the operator, too."""
        if match is None:
            self._audit.record_outcome(request, None, "left", why="no rule fits")
            return
        why = match.rule.escalation_note
        self._audit.record_outcome(request, match.name, "left", why=why)
        if match.rule.action == "escalate":
            self._report(f"{request.id} of {request.server} is for people{f': {why}' if why else ''}")

    # One request

    async def handle(self, request: PendingRequest) -> None:
        """Answer a claimed pending request, or leave it to people. Do nothing once the agent is to stop."""
        if self._is_stopping:
            return
        match = self._rules.find(request)
        if match is None or match.rule.leaves_to_people:
            self._leave_to_people(request, match)
            return
        if (limit := self._budget.reached_limit()) is not None:
            self._audit.record_outcome(request, match.name, "left", why=limit)
            return
        self._budget.count_answer()
        if not self._answering_count:
            self._idle = anyio.Event()
        self._answering_count += 1
        try:
            await self._answer(request, match)
        except anyio.get_cancelled_exc_class():  # the hub has revoked the assignment
            self._audit.record_outcome(request, match.name, "lost")
            raise
        finally:
            self._answering_count -= 1
            if not self._answering_count:
                self._idle.set()

    async def _answer(self, request: PendingRequest, match: RuleMatch) -> None:
        """Decide on a request and answer it, or leave it to people; record the outcome in the audit file.

        A failure is also reported to the operator, unless it only means that somebody else answered first.
        """
        decision = Decision(None)
        try:
            decision = await self._decide(request, match.rule)
            if decision.answer is None:
                self._audit.record_outcome(request, match.name, "left", **decision.audit_fields)
                return
            answer_id = await self._deliver(request, decision.answer)
            action = next(iter(decision.answer))
            self._audit.record_outcome(
                request, match.name, "answered", answer=action, answer_id=answer_id, **decision.audit_fields
            )
        except (AnswerProblem, HubbubError, ValueError) as problem:
            outcome = "refused" if _is_settled(problem) else "failed"
            if isinstance(problem, DecisionFailed):
                decision = problem.decision
            why = problem.reason if isinstance(problem, HubbubError) else str(problem)
            self._audit.record_outcome(request, match.name, outcome, **{**decision.audit_fields, "why": why})
            if outcome == "failed":
                self._report(f"{request.id} is left to people: {problem}")

    async def _decide(self, request: PendingRequest, rule: Rule) -> Decision:
        """Return the decision of a rule; after a failure, which is reported, the refusal that the rule wants for it.

        Raises AnswerProblem if the rule wants no refusal.
        """
        try:
            return await decide(request, rule, self._rules.chat, self._budget.ask, self._run_program)
        except AnswerProblem as problem:
            decision = await refuse_or_raise(problem, rule)
            self._report(f"{request.id}: {problem}")
            return decision

    async def _run_program(self, rule: Rule, request: PendingRequest) -> Answer | None:
        """Return the answer of a rule's program; None if it leaves the request to others. Raises AnswerProblem."""
        return await program.run_program(rule.command or (), request, rule.timeout_s, self._report)

    async def _deliver(self, request: PendingRequest, answer: Answer) -> str:
        """Send an answer to the hub, and return the answer's id. Raises HubbubError.

        If no confirmation comes, the answer is sent again, after the pauses of PAUSES_S.
        """
        claim_id = request.claim.id if request.claim is not None else None
        # Made of the answer itself, so that the hub knows a repeat.
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


def _is_settled(problem: Exception) -> bool:
    """Return whether an error means that the request is closed: answered by somebody else, or withdrawn."""
    return isinstance(problem, HubbubError) and problem.reason in SETTLED
