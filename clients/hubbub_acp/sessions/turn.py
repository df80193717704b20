"""A turn: one prompt, from the opening of its session to the agent's response. It runs in the background."""

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any, Final

from hubbub_acp.faults import AgentFault
from hubbub_acp.sessions.permissions import CANCELLED, PermissionForm, choose_outcome
from hubbub_acp.sessions.times import now

MAX_QUESTIONS: Final = 50
"""The most questions of a turn at one time."""


class TurnQuestion:
    """A permission request that waits for a person. `is_sent`: the host was sent it as a request.

    `problem` says why no person decided, if none could.
    """

    def __init__(self, form: PermissionForm, asked_at: str) -> None:
        self.form = form
        self.asked_at = asked_at
        self.outcome: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.is_sent = False
        self.problem = ""

    def drop(self, problem: str = "") -> None:
        """Cancel the question, unless it is answered. `problem` says why no person could decide, if none could."""
        if not self.outcome.done():
            self.problem = problem
            self.outcome.set_result(CANCELLED)

    def to_wire(self) -> dict[str, str]:
        """Return the question as JSON, for the state of a session."""
        return {"question": self.form.message, "title": self.form.title, "since": self.asked_at}


class Turn:
    """A turn. It has ended once `result` or `fault` is there; `session_id` is "" until its session is open.

    `resumed_at` is the loop's time when it began, or when one of its questions was answered last. `is_prompted`: the
    agent was sent its prompt. `is_withdrawn`: its caller has cancelled it, and wants no result.
    """

    def __init__(self, turn_id: str | None = None) -> None:
        """Make a turn under way; `turn_id` is that of a turn of an earlier process, None for a new turn."""
        self.id = turn_id or secrets.token_urlsafe(18)
        self.created_at = self.updated_at = now()
        self.resumed_at = asyncio.get_running_loop().time()
        self.session_id = ""
        self.questions: dict[str, TurnQuestion] = {}
        self.result: dict[str, Any] | None = None
        self.fault: AgentFault | None = None
        self.is_cancelled = False
        self.is_withdrawn = False
        self.is_prompted = False
        self.task: asyncio.Task[None] | None = None
        self.progress = 0  # counts the reports
        self.progress_line = ""
        self._question_count = 0
        self._change: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def has_ended(self) -> bool:
        """Whether there is a result or a fault."""
        return self.result is not None or self.fault is not None

    def publish(self) -> None:
        """Set the time of the last change to now, and wake all callers of `wait_for_change`."""
        self.updated_at = now()
        change, self._change = self._change, asyncio.get_running_loop().create_future()
        change.set_result(None)

    async def wait_for_change(self) -> None:
        """Wait until something happens: progress, a question, an answer, the end."""
        await asyncio.shield(self._change)  # others wait for the same future

    async def wait_for_end(self) -> None:
        """Wait until the turn has ended."""
        while not self.has_ended:
            await self.wait_for_change()

    def report(self, line: str) -> None:
        """Set the line that says what the agent does now, and wake all callers of `wait_for_change`."""
        self.progress += 1
        self.progress_line = line
        self.publish()

    async def ask(self, question: TurnQuestion) -> dict[str, Any]:
        """Wait until a person has decided; return the outcome: CANCELLED if the turn ends or has too many questions."""
        if self.has_ended or self.is_cancelled:
            return CANCELLED
        if len(self.questions) >= MAX_QUESTIONS:
            question.problem = f"{MAX_QUESTIONS} questions are open"
            return CANCELLED
        self._question_count += 1
        key = f"permission-{self._question_count}"
        self.questions[key] = question
        self.publish()
        try:
            return await question.outcome
        finally:
            self.questions.pop(key, None)
            self.publish()

    def answer(self, key: str, result: Mapping[str, Any]) -> bool:
        """Answer a question with the result of an elicitation; return whether the question was open."""
        question = self.questions.get(key)
        if question is None or question.outcome.done():
            return False
        question.outcome.set_result(choose_outcome(question.form.options, result))
        self.resumed_at = asyncio.get_running_loop().time()
        return True

    def drop_questions(self) -> None:
        """Cancel all open questions."""
        for question in self.questions.values():
            question.drop()

    def end(self, *, result: dict[str, Any] | None = None, fault: AgentFault | None = None) -> None:
        """End the turn with a result or a fault; only the first end counts."""
        if not self.has_ended:
            self.result, self.fault = result, fault
            self.drop_questions()
            self.publish()
