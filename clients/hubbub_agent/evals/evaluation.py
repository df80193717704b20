"""An eval: what the rules, and perhaps the models, answer to recorded pending requests. No hub is asked or told."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from hubbub_agent import program
from hubbub_agent.decision import Ask, Decision, DecisionFailed, decide, or_refusal
from hubbub_agent.evals.cases import Case, as_json, fits, outcome, subject
from hubbub_agent.models.form_reply import check, form_of
from hubbub_agent.rules.problems import AnswerProblem, ConfigProblem
from hubbub_agent.rules.rulebook import Answer, Rule, Rulebook
from hubbub_client.data.records import PendingRequest, Record
from hubbub_client.payload import as_list
from hubbub_shared.legible import clean

Result = Literal["pass", "fail", "skipped"]
MAX_GOT_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class Verdict(Record):
    """What came of a case; `cost` is in the currency of the prices."""

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
    """Counts of all cases; `pass_rate` is a percentage of those that were judged, None if none was."""

    cases: int
    passed: int
    failed: int
    skipped: int
    pass_rate: float | None
    tokens: int
    cost: float


class Replies:
    """Scripted replies of models, by case: a text or a whole completion, or several of them in turn."""

    def __init__(self, replies: Mapping[str, Sequence[Any]]) -> None:
        self._replies = {name: list(each) for name, each in replies.items()}
        self.case = ""

    @classmethod
    def load(cls, file: Path) -> "Replies":
        """Read a JSON object of replies by case. Raises ConfigProblem."""
        try:
            document: object = json.loads(file.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigProblem(f"{file}: {error}") from None
        if not isinstance(document, dict):
            raise ConfigProblem(f"{file}: must be a JSON object: for each case its reply, or a list of them")
        found = cast("dict[str, object]", document)
        return cls({name: as_list(each) or [each] for name, each in found.items()})

    async def ask(self, name: str, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """Return the next reply of the case as a completion. Raises AnswerProblem if there is none."""
        del name, timeout_s
        waiting = self._replies.get(self.case)
        if not waiting:
            raise AnswerProblem(f"the file of replies has no more for {self.case}")
        said = waiting.pop(0)
        if isinstance(said, dict):
            return cast("dict[str, Any]", said)
        message = {"role": "assistant", "content": said if isinstance(said, str) else as_json(said)}
        return {"model": body["model"], "choices": [{"message": message, "finish_reason": "stop"}]}


async def evaluate(
    cases: Sequence[Case], rules: Rulebook, ask: Ask | Replies | None, *, programs: bool
) -> AsyncGenerator[Verdict]:
    """Judge each case. Without `ask` no model is asked, without `programs` none is run: such cases are skipped."""
    for case in cases:
        if isinstance(ask, Replies):
            ask.case = case.name
        yield await _judged(case, rules, ask.ask if isinstance(ask, Replies) else ask, programs=programs)


def summary(verdicts: Sequence[Verdict]) -> Summary:
    """Count verdicts."""
    passed, failed, skipped = (
        sum(each.result == result for each in verdicts) for result in ("pass", "fail", "skipped")
    )
    judged = passed + failed
    return Summary(
        cases=len(verdicts),
        passed=passed,
        failed=failed,
        skipped=skipped,
        pass_rate=round(100 * passed / judged, 2) if judged else None,
        tokens=sum(each.tokens or 0 for each in verdicts),
        cost=sum(each.cost or 0.0 for each in verdicts),
    )


async def _judged(case: Case, rules: Rulebook, ask: Ask | None, *, programs: bool) -> Verdict:
    found = rules.find(case.request)
    if found is None:
        return _verdict(case, None, Decision(None, "no rule fits"))
    name, rule = found
    if (rule.chat is not None and ask is None) or (rule.command is not None and not programs):
        needs = "a model: --ask-models or --model-replies FILE" if rule.command is None else "a program: --run-programs"
        return _verdict(case, name, Decision(None, f"it needs {needs}"), skipped=True)
    try:
        decision = await _decided(case.request, rule, rules, ask or _nobody)
        _check(decision.answer, case.request)
    except (AnswerProblem, ValueError) as problem:
        spent = problem.decision if isinstance(problem, DecisionFailed) else Decision(None)
        return _verdict(case, name, Decision(None, str(problem), spent.model, spent.tokens, spent.cost))
    return _verdict(case, name, decision)


async def _decided(request: PendingRequest, rule: Rule, rules: Rulebook, ask: Ask) -> Decision:
    try:
        return await decide(request, rule, rules.chat, ask, _run)
    except AnswerProblem as problem:
        return await or_refusal(problem, rule)


def _check(answer: Answer | None, request: PendingRequest) -> None:
    """Check what a rule or program accepts a form with, as the hub would: what does not fit is left to people."""
    if answer is None or request.kind != "elicitation_form" or outcome(answer) != "answer":
        return
    content = subject(answer, request)
    if isinstance(content, Mapping):
        check(cast("Mapping[str, Any]", content), form_of(request))


def _verdict(case: Case, rule: str | None, decision: Decision, *, skipped: bool = False) -> Verdict:
    answer = decision.answer
    got = "-" if skipped else outcome(answer)
    if answer is not None and outcome(answer) == "answer":
        got = f"answer {as_json(subject(answer, case.request))}"
    result: Result = "skipped" if skipped else "pass" if fits(case.expected, answer, case.request) else "fail"
    tokens = decision.tokens
    return Verdict(
        case=case.name,
        result=result,
        expected=case.expected.words[:MAX_GOT_CHARS],
        got=got[:MAX_GOT_CHARS],
        rule=rule,
        why=clean(decision.why) if decision.why else None,
        model=decision.model,
        tokens=tokens.input + tokens.output if tokens is not None else None,
        cost=decision.cost or None,
    )


async def _run(rule: Rule, request: PendingRequest) -> Answer | None:
    return await program.run(rule.command or (), request, rule.timeout_s, lambda _: None)


async def _nobody(name: str, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
    raise AssertionError(name, body, timeout_s)  # such cases are skipped
