"""Cases of an eval: recorded pending requests, each with the expected answer of the agent, in a file of JSON."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from hubbub_agent.rules.conditions import MAX_TEXT_CHARS, compile_pattern
from hubbub_agent.rules.problems import ConfigProblem
from hubbub_agent.rules.rulebook import Answer
from hubbub_client.data.records import EPOCH, PendingRequest, RequestKind
from hubbub_client.payload import as_object
from hubbub_frontend import private_files
from hubbub_frontend.forms import fields

Outcome = Literal["answer", "decline", "escalate"]
OUTCOMES: tuple[str, ...] = get_args(Outcome)
MATCHES = ("exact", "subset", "regex")
KINDS: tuple[str, ...] = get_args(RequestKind)
MAX_CASES = 10_000
MAX_CASE_BYTES = 16 * 1024 * 1024
EXPECT_FORMAT = (
    'expect must be "answer", "decline", "escalate", or one of {"exact": ...}, {"subset": ...}, {"regex": ...}'
)


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected outcome of a case; for an answer perhaps also its content, compared by `match` with `value`."""

    outcome: Outcome
    match: str | None = None
    value: Any = None

    @property
    def summary(self) -> str:
        """Return the expectation in words."""
        return self.outcome if self.match is None else f"answer, {self.match} {as_json(self.value)}"


@dataclass(frozen=True, slots=True)
class Case:
    """One case, by the name of its file."""

    name: str
    request: PendingRequest
    expected: Expectation


def load_cases(folder: Path) -> Sequence[Case]:
    """Return the cases of a folder, by name. Raises ConfigProblem, which names the file and what is wrong."""
    try:
        files = sorted(each for each in folder.iterdir() if each.suffix == ".json")
    except OSError as error:
        raise ConfigProblem(f"{folder}: cannot be read: {error.strerror}") from None
    if not files:
        raise ConfigProblem(f"{folder}: has no case; hubbub agent record {folder} writes cases from the inbox")
    if len(files) > MAX_CASES:
        raise ConfigProblem(f"{folder}: has more than {MAX_CASES} cases")
    return [_load_case(file) for file in files]


def save_case(folder: Path, request: PendingRequest, expected: Expectation) -> bool:
    """Write a case, without the recorded answer, to a file that only its owner can read. Raises OSError.

    Return False, and write nothing, if the file is there already.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", request.id)[:100]
    expect = expected.outcome if expected.match is None else {expected.match: expected.value}
    document = {**as_object(request.to_json()), "answer": None, "expect": expect}
    file = folder / f"{name}.json"
    if file.exists():
        return False
    private_files.write_private(
        file, f"{json.dumps(document, indent=2, ensure_ascii=False)}\n".encode("utf-8", "surrogatepass")
    )
    return True


def expect_recorded_answer(request: PendingRequest) -> Expectation:
    """Return the expectation that the recorded answer of a person stands for.

    After a refusal any refusal is expected. After an answer to a form or for roots, exactly this answer is expected;
    for other kinds any answer that is no refusal.
    """
    answer = as_object(request.answer)
    action = answer.get("action")
    if answer.get("error") or action in ("decline", "cancel", "deny"):
        return Expectation("decline")
    if request.kind == "elicitation_form":
        return Expectation("answer", "exact", answer.get("content") or {})
    return Expectation("answer", "exact", dict(answer)) if request.kind == "roots" else Expectation("answer")


def classify_answer(answer: Answer | None) -> Outcome:
    """Return the outcome of an answer: an answer or a refusal; for None an escalation to people."""
    if answer is None:
        return "escalate"
    result = as_object(answer.get("result"))
    is_refusal = {"decline", "cancel", "reject", "deny"} & answer.keys() or result.get("action") in (
        "decline",
        "cancel",
    )
    return "decline" if is_refusal else "answer"


def compared_content(answer: Answer, request: PendingRequest) -> Any:
    """Return the part of an answer that is compared with the expectation.

    That is the content of a form with its defaults, the text of a sampling, else the MCP result.
    """
    if "text" in answer:
        return answer["text"]
    result = as_object(answer.get("result"))
    if request.kind == "sampling":
        content = as_object(result.get("content"))
        return content["text"] if content.get("type") == "text" else dict(result)
    if request.kind != "elicitation_form":
        return dict(result)
    form_content = answer.get("accept", result.get("content"))
    form = fields(as_object(request.request).get("requestedSchema"))
    return {**{each.name: each.default for each in form if each.default is not None}, **as_object(form_content)}


def is_expected(expected: Expectation, answer: Answer | None, request: PendingRequest) -> bool:
    """Return whether an answer has the expected outcome and, if the case demands more, the expected content.

    `answer` None stands for an escalation to people.
    """
    if classify_answer(answer) != expected.outcome:
        return False
    if answer is None or expected.match is None:
        return True
    return _matches(expected.match, expected.value, compared_content(answer, request))


def as_json(value: Any) -> str:
    """Return a value as JSON in one line."""
    return json.dumps(value, ensure_ascii=False)


def _matches(match: str, expected: Any, actual: Any) -> bool:
    """Return whether a value matches the expected value, by the comparison that `match` names.

    exact: both are equal. subset: each expected field is there and equal. regex: each expected pattern occurs in the
    value, or in the field of the same name.
    """
    if match == "exact":
        return as_json_sorted(expected) == as_json_sorted(actual)
    if isinstance(expected, Mapping):
        fields, actual_fields = cast("Mapping[str, Any]", expected), as_object(actual)
        return all(
            name in actual_fields and _matches(match, value, actual_fields[name]) for name, value in fields.items()
        )
    if match == "regex":
        text = actual if isinstance(actual, str) else as_json(actual)
        return isinstance(expected, str) and compile_pattern(expected).matches(text[:MAX_TEXT_CHARS])
    return as_json_sorted(expected) == as_json_sorted(actual)


def as_json_sorted(value: Any) -> str:
    """Return a value as JSON with sorted keys, so that equal values give equal texts; true is not equal to 1."""
    return json.dumps(value, sort_keys=True)


def _load_case(file: Path) -> Case:
    """Read a case from its file. Raises ConfigProblem."""
    try:
        if file.stat().st_size > MAX_CASE_BYTES:
            raise ConfigProblem(f"{file}: is larger than {MAX_CASE_BYTES} bytes")
        document: object = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigProblem(f"{file}: {error}") from None
    record = as_object(document)
    if record.get("kind") not in KINDS:
        raise ConfigProblem(f"{file}: kind must be one of {', '.join(KINDS)}, as hubbub --json inbox show prints it")
    try:
        return Case(file.stem, _parse_request(record), _parse_expected(record.get("expect")))
    except ValueError as error:
        raise ConfigProblem(f"{file}: {error}") from None


def _parse_request(record: Mapping[str, Any]) -> PendingRequest:
    """Return the pending request of a case as an open one, without call, claim, deadline or answer."""
    return PendingRequest(
        id=str(record.get("id") or "-"),
        server=str(record.get("server") or ""),
        kind=cast("RequestKind", record["kind"]),
        state="open",
        delivery="none",
        request=record.get("request"),
        changed_arguments=record.get("changed_arguments"),
        call_id=None,
        cause_source=None,
        task_id=None,
        created_at=EPOCH,
        deadline=None,
        claim=None,
        answer=None,
        answered_by=None,
        reason=None,
    )


def _parse_expected(document: object) -> Expectation:
    """Return the expectation of a case. Raises ValueError."""
    if document in OUTCOMES:
        return Expectation(cast("Outcome", document))
    fields = as_object(document)
    if len(fields) != 1 or not (fields.keys() <= set(MATCHES)):
        raise ValueError(EXPECT_FORMAT)
    ((match, value),) = fields.items()
    if match == "regex":
        _check_patterns(value)
    return Expectation("answer", match, value)


def _check_patterns(value: object) -> None:
    """Check that a value is a usable pattern, or an object of such values. Raises ValueError."""
    if isinstance(value, Mapping):
        for each in as_object(cast("object", value)).values():
            _check_patterns(each)
    elif isinstance(value, str):
        compile_pattern(value)
    else:
        raise ValueError("expect.regex must be a text, or an object with a text for each field")
