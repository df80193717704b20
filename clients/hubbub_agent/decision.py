"""What an agent does with a pending request: its rule, and the answer of a text, a program or a model."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hubbub_agent.models import chat, form_reply
from hubbub_agent.models.endpoint import Chat
from hubbub_agent.rules.problems import AnswerProblem
from hubbub_agent.rules.rulebook import Answer, Rule
from hubbub_client.data.records import PendingRequest
from hubbub_client.payload import as_object
from hubbub_shared.legible import clean

MAX_WHY_CHARS = 500
LEAST_S = 0.001
REFUSAL = "No answer could be found to this request"

Ask = Callable[[str, Mapping[str, Any], float], Awaitable[Mapping[str, Any]]]
"""Asks a model of the rules, by its name: the request, and the seconds that it may take. Raises AnswerProblem."""

Run = Callable[[Rule, PendingRequest], Awaitable[Answer | None]]
"""Runs the program of a rule. Raises AnswerProblem."""


class OverBudget(Exception):
    """The limits do not allow to ask a model; the message is the limit's name."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer, None for people; why, and the usage that it took."""

    answer: Answer | None
    why: str | None = None
    model: str | None = None
    tokens: chat.TokenUsage | None = None
    cost: float | None = None

    @property
    def noted(self) -> dict[str, Any]:
        """Return the fields of an audit line."""
        tokens = {"input": self.tokens.input, "output": self.tokens.output} if self.tokens is not None else None
        return {"why": self.why, "model": self.model, "tokens": tokens, "cost": self.cost or None}


class DecisionFailed(AnswerProblem):
    """No usable answer; `decision` has what it took all the same."""

    def __init__(self, why: str, decision: Decision) -> None:
        super().__init__(why)
        self.decision = decision


async def decide(request: PendingRequest, rule: Rule, models: Mapping[str, Chat], ask: Ask, run: Run) -> Decision:
    """Return the decision of a rule that fits. Raises AnswerProblem."""
    if rule.leaves:
        return Decision(None, rule.note)
    if rule.command is not None:
        return Decision(await run(rule, request))
    if rule.chat is None:
        return Decision(rule.answer(request))
    try:
        if request.kind == "sampling":
            return await _sampled(request, rule, models[rule.chat], ask)
        return await _filled_in(request, rule, models[rule.chat], ask)
    except OverBudget as limit:
        return Decision(None, str(limit))


async def or_refusal(problem: AnswerProblem, rule: Rule) -> Decision:
    """Return the refusal that a rule wants in place of a failure. Raises the problem if it wants none."""
    if rule.on_error != "reject":
        raise problem
    spent = problem.decision if isinstance(problem, DecisionFailed) else Decision(None)
    return replace(spent, answer={"reject": REFUSAL}, why=clean(str(problem))[:MAX_WHY_CHARS])


async def _sampled(request: PendingRequest, rule: Rule, model: Chat, ask: Ask) -> Decision:
    body = chat.completion(model, as_object(request.request))
    said = await ask(rule.chat or "", body, rule.timeout_s)
    spent = _spent(Decision(None), said, model)
    try:
        reply = chat.reply(said, body["model"], with_tools="tools" in body)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise DecisionFailed(f"the model's answer is not a chat completion: {error!r}", spent) from None
    return replace(spent, answer=reply.answer, model=reply.model)


async def _filled_in(request: PendingRequest, rule: Rule, model: Chat, ask: Ask) -> Decision:
    """Have a model fill in a form; once it may mend a reply that does not fit."""
    form = form_reply.form_of(request)
    body = form_reply.completion(model, request)
    spent = Decision(None)
    ends = time.monotonic() + rule.timeout_s
    for last in (False, True):
        said = await ask(rule.chat or "", body, max(ends - time.monotonic(), LEAST_S))
        spent, text = _spent(spent, said, model), ""
        try:
            text = form_reply.text_of(said)
            answer, why = form_reply.answer(text, form)
        except form_reply.Escalated as reason:
            return replace(spent, why=f"the model leaves it to people: {reason}")
        except form_reply.Misfit as misfit:
            if last:
                raise DecisionFailed(f"the model's answer does not fit the form: {misfit}", spent) from None
            body = form_reply.again(body, text, misfit)
        except AnswerProblem as problem:
            raise DecisionFailed(str(problem), spent) from None
        else:
            return replace(spent, answer=answer, why=why or None)
    raise AssertionError  # the second reply ends it


def _spent(before: Decision, said: Mapping[str, Any], model: Chat) -> Decision:
    """Add what a completion took."""
    tokens = chat.tokens_of(said)
    cost = tokens.use(model).cost if tokens is not None else 0.0
    both = tokens if before.tokens is None else before.tokens + tokens if tokens is not None else before.tokens
    name = clean(str(said.get("model") or model.model))[:100]
    return replace(before, model=name, tokens=both, cost=(before.cost or 0.0) + cost)
