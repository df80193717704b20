"""An agent's decision on a pending request: by its rule, with a fixed answer, or one of a program or a model."""

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
MIN_TIMEOUT_S = 0.001
REFUSAL = "No answer could be found to this request"

AskModel = Callable[[str, Mapping[str, Any], float], Awaitable[Mapping[str, Any]]]
"""Asks a model of the rules, by its name: the request, and the seconds that it may take. Raises AnswerProblem."""

RunProgram = Callable[[Rule, PendingRequest], Awaitable[Answer | None]]
"""Runs the program of a rule. Raises AnswerProblem."""


class OverBudget(Exception):
    """The limits do not allow to ask a model; the message is the limit's name."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer, or None to leave the request to people; the reason, and the model usage of the decision."""

    answer: Answer | None
    why: str | None = None
    model: str | None = None
    tokens: chat.TokenUsage | None = None
    cost: float | None = None

    @property
    def audit_fields(self) -> dict[str, Any]:
        """Return the fields of an audit line; None for unknown ones, and for a cost of 0."""
        tokens = {"input": self.tokens.input, "output": self.tokens.output} if self.tokens is not None else None
        return {"why": self.why, "model": self.model, "tokens": tokens, "cost": self.cost or None}


class DecisionFailed(AnswerProblem):
    """A model gave no usable answer; `decision` has the usage of the attempt."""

    def __init__(self, why: str, decision: Decision) -> None:
        super().__init__(why)
        self.decision = decision


async def decide(
    request: PendingRequest, rule: Rule, models: Mapping[str, Chat], ask: AskModel, run: RunProgram
) -> Decision:
    """Return the decision of a rule on a request that it fits. If the budget allows no model, people answer.

    `models` are the models of the rules by name; `ask` asks one of them, `run` runs a rule's program. Raises
    AnswerProblem.
    """
    if rule.leaves_to_people:
        return Decision(None, rule.escalation_note)
    if rule.command is not None:
        return Decision(await run(rule, request))
    if rule.chat is None:
        return Decision(rule.fixed_answer(request))
    try:
        if request.kind == "sampling":
            return await _answer_sampling(request, rule, models[rule.chat], ask)
        return await _fill_in_form(request, rule, models[rule.chat], ask)
    except OverBudget as error:
        return Decision(None, str(error))


async def refuse_or_raise(problem: AnswerProblem, rule: Rule) -> Decision:
    """Return the refusal that a rule wants in place of a failure, with the usage of the failed attempt.

    Raises the problem itself if the rule wants no refusal.
    """
    if rule.on_error != "reject":
        raise problem
    failed_decision = problem.decision if isinstance(problem, DecisionFailed) else Decision(None)
    return replace(failed_decision, answer={"reject": REFUSAL}, why=clean(str(problem))[:MAX_WHY_CHARS])


async def _answer_sampling(request: PendingRequest, rule: Rule, model: Chat, ask: AskModel) -> Decision:
    """Let a model write the text of a sampling, and return the decision. Raises AnswerProblem, OverBudget."""
    body = chat.build_request(model, as_object(request.request))
    completion = await ask(rule.chat or "", body, rule.timeout_s)
    # The tokens are spent also if the reply cannot be used.
    decision = _add_usage(Decision(None), completion, model)
    try:
        reply = chat.parse_reply(completion, body["model"], with_tools="tools" in body)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise DecisionFailed(f"the model's answer is not a chat completion: {error!r}", decision) from None
    return replace(decision, answer=reply.answer, model=reply.model)


async def _fill_in_form(request: PendingRequest, rule: Rule, model: Chat, ask: AskModel) -> Decision:
    """Let a model fill in a form, and return the decision: its answer, or to leave the form to people.

    If the model's reply does not fit the form, the model may correct it once. Raises AnswerProblem, OverBudget.
    """
    form = form_reply.form_fields(request)
    body = form_reply.build_request(model, request)
    decision = Decision(None)
    deadline = time.monotonic() + rule.timeout_s
    for is_last in (False, True):
        completion = await ask(rule.chat or "", body, max(deadline - time.monotonic(), MIN_TIMEOUT_S))
        decision = _add_usage(decision, completion, model)
        text = ""
        try:
            text = form_reply.completion_text(completion)
            answer, why = form_reply.parse_reply(text, form)
        except form_reply.Escalation as reason:
            return replace(decision, why=f"the model leaves it to people: {reason}")
        except form_reply.Misfit as misfit:
            if is_last:
                raise DecisionFailed(f"the model's answer does not fit the form: {misfit}", decision) from None
            body = form_reply.build_correction(body, text, misfit)
        except AnswerProblem as problem:
            raise DecisionFailed(str(problem), decision) from None
        else:
            return replace(decision, answer=answer, why=why or None)
    raise AssertionError  # never reached: after the second reply the loop returns or raises


def _add_usage(decision: Decision, completion: Mapping[str, Any], model: Chat) -> Decision:
    """Return the decision with the model's name, and with the tokens and the cost of a completion added."""
    name = clean(str(completion.get("model") or model.model))[:100]
    tokens, cost = chat.reported_usage(completion), decision.cost or 0.0
    if tokens is None:
        return replace(decision, model=name, cost=cost)
    total = tokens if decision.tokens is None else decision.tokens + tokens
    return replace(decision, model=name, tokens=total, cost=cost + tokens.to_model_usage(model).cost)
