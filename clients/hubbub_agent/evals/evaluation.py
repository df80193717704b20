"""An eval: the answers of the rules, and perhaps of models, to recorded pending requests. No hub takes part."""

import json
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from hubbub_agent import program
from hubbub_agent.decision import AskModel, Decision, DecisionFailed, decide, refuse_or_raise
from hubbub_agent.evals.cases import Case, as_json, classify_answer, compared_content, is_expected
from hubbub_agent.models.form_reply import check_content, form_fields
from hubbub_agent.rules.problems import AnswerProblem, ConfigProblem
from hubbub_agent.rules.rulebook import Answer, Rule, Rulebook
from hubbub_client.data.records import PendingRequest, Record
from hubbub_client.payload import as_list
from hubbub_shared.legible import clean

Result = Literal["pass", "fail", "skipped"]
MAX_GOT_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class Verdict(Record):
    """The result of a case; `cost` is in the currency of the prices."""

    case: str
    result: Result
    expected: str
    got: str
    rule: str | None
    why: str | None
    model: str | None = None
    tokens: int | None = None
    cost: float | None = None


@dataclass(frozen=True, kw_only=True)
class Summary(Record):
    """Counts of all cases; `pass_rate` is a percentage of the judged cases, None if none was judged."""

    cases: int
    passed: int
    failed: int
    skipped: int
    pass_rate: float | None
    tokens: int
    cost: float


class ScriptedReplies:
    """Scripted replies of models, by case: a text or a whole completion, or several of them in turn."""

    def __init__(self, replies: Mapping[str, Sequence[Any]]) -> None:
        self._replies = {name: list(each) for name, each in replies.items()}
        self.case = ""

    @classmethod
    def load(cls, file: Path) -> "ScriptedReplies":
        """Read a JSON object of replies by case. Raises ConfigProblem."""
        try:
            document: object = json.loads(file.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigProblem(f"{file}: {error}") from None
        if not isinstance(document, dict):
            raise ConfigProblem(f"{file}: must be a JSON object: for each case its reply, or a list of them")
        replies = cast("dict[str, object]", document)
        return cls({name: as_list(each) or [each] for name, each in replies.items()})

    async def ask(self, name: str, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """Return the next scripted reply of the current case as a completion. Raises AnswerProblem if none is left."""
        del name, timeout_s  # the replies of a case are for all models, and come at once
        replies = self._replies.get(self.case)
        if not replies:
            raise AnswerProblem(f"the file of replies has no more for {self.case}")
        reply = replies.pop(0)
        if isinstance(reply, dict):
            return cast("dict[str, Any]", reply)
        message = {"role": "assistant", "content": reply if isinstance(reply, str) else as_json(reply)}
        return {"model": body["model"], "choices": [{"message": message, "finish_reason": "stop"}]}


async def evaluate(
    cases: Sequence[Case], rules: Rulebook, ask: AskModel | ScriptedReplies | None, *, programs: bool
) -> AsyncGenerator[Verdict]:
    """Judge each case, and yield its verdict.

    `ask` is a function that asks a model, or has scripted replies in place of models. Without `ask` no model is asked,
    without `programs` no program is run: cases that need a model or a program are skipped.
    """
    for case in cases:
        if isinstance(ask, ScriptedReplies):
            ask.case = case.name
        yield await _judge(case, rules, ask.ask if isinstance(ask, ScriptedReplies) else ask, programs=programs)


def summarize(verdicts: Sequence[Verdict]) -> Summary:
    """Count the verdicts, and add up their tokens and cost."""
    counts = Counter(verdict.result for verdict in verdicts)
    judged = counts["pass"] + counts["fail"]
    return Summary(
        cases=len(verdicts),
        passed=counts["pass"],
        failed=counts["fail"],
        skipped=counts["skipped"],
        pass_rate=round(100 * counts["pass"] / judged, 2) if judged else None,
        tokens=sum(verdict.tokens or 0 for verdict in verdicts),
        cost=sum(verdict.cost or 0.0 for verdict in verdicts),
    )


async def _judge(case: Case, rules: Rulebook, ask: AskModel | None, *, programs: bool) -> Verdict:
    """Decide on a case as the agent would, and return how the decision compares with the expectation.

    A decision that fails counts as left to people.
    """
    match = rules.find(case.request)
    if match is None:
        return _make_verdict(case, None, Decision(None, "no rule fits"))
    rule = match.rule
    if rule.chat is not None and ask is None:
        why = "it needs a model: --ask-models or --model-replies FILE"
        return _make_verdict(case, match.name, Decision(None, why), skipped=True)
    if rule.command is not None and not programs:
        why = "it needs a program: --run-programs"
        return _make_verdict(case, match.name, Decision(None, why), skipped=True)
    try:
        decision = await _decide(case.request, rule, rules, ask or _ask_no_model)
        _check_form_content(decision.answer, case.request)
    except (AnswerProblem, ValueError) as problem:
        decision = problem.decision if isinstance(problem, DecisionFailed) else Decision(None)
        decision = replace(decision, answer=None, why=str(problem))
    return _make_verdict(case, match.name, decision)


async def _decide(request: PendingRequest, rule: Rule, rules: Rulebook, ask: AskModel) -> Decision:
    """Return the decision of a rule; after a failure, the refusal that the rule wants for it.

    Raises AnswerProblem if the rule wants no refusal.
    """
    try:
        return await decide(request, rule, rules.chat, ask, _run_program)
    except AnswerProblem as problem:
        return await refuse_or_raise(problem, rule)


def _check_form_content(answer: Answer | None, request: PendingRequest) -> None:
    """Check the content with which a form is accepted. Raises Misfit, AnswerProblem.

    A hub would refuse such an answer; here no hub is asked. Answers that accept no form are not checked.
    """
    if answer is None or request.kind != "elicitation_form" or classify_answer(answer) != "answer":
        return
    content = compared_content(answer, request)
    if isinstance(content, Mapping):
        check_content(cast("Mapping[str, Any]", content), form_fields(request))


def _make_verdict(case: Case, rule: str | None, decision: Decision, *, skipped: bool = False) -> Verdict:
    """Return the verdict on a decision: whether it meets the expectation. With `skipped`, nothing was decided."""
    answer = decision.answer
    actual = "-" if skipped else classify_answer(answer)
    if answer is not None and classify_answer(answer) == "answer":
        actual = f"answer {as_json(compared_content(answer, case.request))}"
    result: Result = "skipped" if skipped else "pass" if is_expected(case.expected, answer, case.request) else "fail"
    tokens = decision.tokens
    return Verdict(
        case=case.name,
        result=result,
        expected=case.expected.summary[:MAX_GOT_CHARS],
        got=actual[:MAX_GOT_CHARS],
        rule=rule,
        why=clean(decision.why) if decision.why else None,
        model=decision.model,
        tokens=tokens.input + tokens.output if tokens is not None else None,
        cost=decision.cost or None,
    )


async def _run_program(rule: Rule, request: PendingRequest) -> Answer | None:
    """Return the answer of a rule's program; None if it leaves the request to others. Its stderr is dropped.

    Raises AnswerProblem.
    """
    return await program.run_program(rule.command or (), request, rule.timeout_s, lambda _: None)


async def _ask_no_model(name: str, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
    """Stand in for a model where none may be asked; never called, since cases that need one are skipped before."""
    raise AssertionError(name, body, timeout_s)  # such cases are skipped
