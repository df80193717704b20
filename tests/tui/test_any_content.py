"""Whatever a server sends, there is a text for it, and the text is fit for a terminal."""

import string
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hubbub_client.data.catalog import CatalogEntry
from hubbub_client.data.records import Call, PendingRequest, Progress, ServerEvent
from hubbub_frontend.display import text
from hubbub_frontend.display.questions import render_request
from hubbub_frontend.display.records import call_title, question_text
from hubbub_frontend.forms import fields, parse_value
from hubbub_tui.boards import Boards, event_line
from hubbub_tui.panes.calls import render_call, render_progress
from hubbub_tui.screens.invocation import build_request, input_fields

NOW = datetime.now(UTC)
WORDS = """
message requestedSchema properties required type title description default enum enumNames oneOf anyOf const items
minimum maximum minLength maxLength minItems maxItems format url messages content role text data mimeType
modelPreferences hints name tools maxTokens systemPrompt isError structuredContent contents uri blob completion values
total arguments inputSchema resource $ref $defs level line progress
"""
KEYS = WORDS.split()
VALUES = "string number integer boolean array object text image email https://x.y/ \x1b[2J".split(" ")  # noqa: SIM905
HUGE = (2**64, 10**400, -(10**400))
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(HUGE)
leaves = scalars | st.sampled_from(VALUES) | st.text(max_size=8)
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=30,
)
objects = st.dictionaries(st.sampled_from(KEYS), anything, max_size=8)
METHODS = ("tools/call", "resources/read", "prompts/get", "completion/complete", "x/y")


def fit(shown: str) -> None:
    assert not {each for each in shown if ord(each) < 32 or 0x7F <= ord(each) < 0xA0} - set("\n\t")


@given(st.sampled_from(("elicitation_form", "elicitation_url", "sampling", "roots")), anything)
def test_any_request_can_be_shown(kind: Any, params: Any) -> None:
    unset = dict.fromkeys(("call_id", "cause_source", "task_id", "deadline", "claim", "answered_by", "reason"))
    request = PendingRequest(
        id="r", server="s", kind=kind, state="answered", delivery="none", request=params, answer=params, created_at=NOW,
        **unset,
    )  # fmt: skip
    fit(text.line(question_text(request)))
    fit(render_request(request).plain)


@given(st.sampled_from(METHODS), anything, anything)
def test_any_call_can_be_shown(method: str, params: Any, result: Any) -> None:
    unset = dict.fromkeys(("started_at", "completed_at", "error", "task_id"))
    call = Call(
        id="c", server="s", method=method, params=params, state="completed", created_at=NOW, result=result,
        pending_ids=("r",), **unset,
    )  # fmt: skip
    fit(text.line(call_title(call)))
    boards: Any = Boards(None)  # pyright: ignore[reportArgumentType] - none of its watches is started
    fit(render_call(call, boards).plain)


@given(st.sampled_from(("tool", "resource", "template", "prompt")), objects)
def test_any_entry_of_a_catalog_can_be_used(kind: Any, entry: dict[str, Any]) -> None:
    record = CatalogEntry(server="s", kind=kind, object={**entry, "name": "n", "uri": "x://{y}"})
    questions = input_fields(record)
    build_request(record, {each.name: "1" for each in questions})


@given(anything, st.text(alphabet=string.printable, max_size=10) | st.text(alphabet=string.digits, min_size=400))
def test_any_schema_has_questions_that_take_an_answer_or_say_why_not(schema: Any, typed: str) -> None:
    for field in fields({"properties": {"a": schema, "b": schema}, "$defs": {"x": schema}}):
        assert isinstance(field.hint, str)
        problem = "none"
        try:
            parse_value(field, typed)
        except ValueError as error:
            problem = str(error)
        assert problem


@given(st.sampled_from(("log", "stderr", "progress", "other")), anything)
def test_any_event_can_be_told(kind: Any, params: Any) -> None:
    fit(text.line(event_line(ServerEvent(server="s", kind=kind, params=params, method=None, call_id=None, at=NOW))))


@given(st.floats(), st.none() | st.floats())
def test_any_progress_has_a_bar(progress: float, total: float | None) -> None:
    fit(render_progress(Progress(call_id="c", progress=progress, total=total, message=None)).plain)
