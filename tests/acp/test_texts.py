"""What agents write, made plain and bounded; and permission requests as forms. Pure functions."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub_acp.faults import AgentFault
from hubbub_acp.plain_text import TextTail, make_line, strip_escapes
from hubbub_acp.sessions.opening import PROMPT_BYTES, check_prompt, open_session
from hubbub_acp.sessions.permissions import (
    CALL_BYTES,
    CANCELLED,
    MAX_CONTENTS,
    RAW_LEVELS,
    bound_tool_call,
    choose_outcome,
    make_form,
    read_options,
)
from hubbub_acp.sessions.session import AgentInfo, AgentSession
from hubbub_acp.sessions.tool_calls import CHANGED_CHARACTERS, PATHS_CHARACTERS, ToolCalls
from hubbub_acp.sessions.transcript import EVENT, SPEECH, TRANSCRIPT_BYTES, Transcript
from hubbub_acp.surface.resources import make_uri

ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=6), below, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "toolCallId",
        "title",
        "kind",
        "status",
        "content",
        "locations",
        "rawInput",
        "path",
        "line",
        "type",
        "oldText",
        "newText",
        "entries",
        "sessionUpdate",
        "optionId",
        "name",
        "priority",
        "text",
        "uri",
    ]
)
WORDS = st.sampled_from(
    [
        "tool_call",
        "tool_call_update",
        "plan",
        "agent_message_chunk",
        "agent_thought_chunk",
        "user_message_chunk",
        "diff",
        "text",
        "content",
        "edit",
        "completed",
        "failed",
        "session_info_update",
    ]
)
LOOKALIKES = st.recursive(
    st.none() | WORDS | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(KEYS, below, max_size=6),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("plain ä\n\ttext", "plain ä\n\ttext"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://example.com\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r0m\x1b\\after", "after"),
        ("\x1b(Bafter", "after"),
        ("a\x08\x7f\x00b\r\n", "ab\n"),
        ("\x1b]never ended, and more", "never ended, and more"),
        ("\x9dnever ended\x9dtitle\x07after", "never endedafter"),
        ("end\x1b", "end"),
        ("end\x1b[", "end"),
    ],
)
def test_escape_sequences_are_taken_out_whole(text: str, plain: str) -> None:
    assert strip_escapes(text) == plain


@given(st.text(alphabet="\x1b[]P\\;0m\x07\x9b\x9c\x9dab \n", max_size=60))
def test_no_control_character_is_left_whatever_comes(text: str) -> None:
    assert not any(
        (character < " " and character not in "\n\t") or "\x7f" <= character <= "\x9f"
        for character in strip_escapes(text)
    )
    assert "\n" not in make_line(text, 20)
    assert len(make_line(text, 20)) <= 20


@given(st.lists(st.text(max_size=30), max_size=40), st.integers(1, 50))
def test_the_end_of_a_text_is_kept_within_its_bound(parts: list[str], limit: int) -> None:
    tail = TextTail(limit)
    for part in parts:
        tail.append(part)
    kept = tail.read()
    assert len(kept.encode()) <= limit
    plain = strip_escapes("".join(parts))
    if len("".join(parts)) <= limit:
        assert plain.endswith(kept)


@given(LOOKALIKES)
def test_a_form_is_made_of_whatever_an_agent_asks(tool_call: Any) -> None:
    call = tool_call if isinstance(tool_call, dict) else {"content": tool_call, "locations": tool_call}
    shown, omitted = bound_tool_call(call)
    assert omitted >= 0
    form = make_form("s", "/work", "Agent", call, read_options([{"optionId": "a", "name": "A", "kind": "allow_once"}]))
    assert form.message.startswith("Agent wants to ")
    assert all(content["type"] in ("diff", "content") for content in shown["content"])


def test_all_texts_of_a_tool_call_together_are_bounded() -> None:
    diff = {"type": "diff", "path": "/a", "oldText": "o" * 200_000, "newText": "n" * 200_000}
    shown, omitted = bound_tool_call({"toolCallId": "c", "content": [diff] * 30, "rawInput": {"text": "r" * 100_000}})
    kept = sum(len(each.get(key) or "") for each in shown["content"] for key in ("oldText", "newText"))
    assert kept <= CALL_BYTES
    assert omitted > 30 * 400_000 - CALL_BYTES
    assert shown["rawInput"].startswith('{"text":"rrr')


@given(ANY)
def test_an_answer_chooses_an_option_or_rejects(content: Any) -> None:
    options = read_options(
        [
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ]
    )
    for action in ("accept", "decline", "cancel", "other"):
        outcome = choose_outcome(options, {"action": action, "content": content})
        assert outcome == {"outcome": {"outcome": "selected", "optionId": "no"}}
    other = choose_outcome(options, {"action": "accept", "content": {"decision": "always"}})
    assert other == {"outcome": {"outcome": "selected", "optionId": "no"}}
    accepted = choose_outcome(options, {"action": "accept", "content": {"decision": "yes"}})
    assert accepted == {"outcome": {"outcome": "selected", "optionId": "yes"}}
    assert choose_outcome(options[:1], {"action": "decline"}) == CANCELLED


def test_options_stand_in_the_order_of_what_they_allow_each_once() -> None:
    given_options = [
        {"optionId": "4", "name": "never", "kind": "reject_always"},
        {"optionId": "2", "name": "always", "kind": "allow_always"},
        {"optionId": "x", "name": "odd", "kind": "odd"},
        {"optionId": "3", "name": "no", "kind": "reject_once"},
        {"optionId": "1", "name": "once", "kind": "allow_once"},
        {"optionId": "1", "name": "again", "kind": "reject_once"},
    ]
    assert [option.id for option in read_options(given_options)] == ["1", "2", "x", "3", "4"]


def test_what_a_permission_request_leaves_out_comes_from_the_updates_of_its_call() -> None:
    calls = ToolCalls()
    diff = [{"type": "diff", "path": "/a", "oldText": None, "newText": "new"}]
    calls.update(
        {"toolCallId": "c", "title": "Write", "kind": "edit", "content": diff, "rawInput": {"a": 1, "b": 1}}, "t"
    )
    complete = calls.complete_request({"toolCallId": "c", "title": "Write /a", "content": [], "rawInput": {"b": 2}})
    assert complete["content"] == diff
    assert (complete["title"], complete["kind"], complete["rawInput"]) == ("Write /a", "edit", {"a": 1, "b": 2})


@given(st.lists(LOOKALIKES, max_size=12))
def test_a_session_takes_whatever_updates_come(updates: list[Any]) -> None:
    session = AgentSession("s", "/work", AgentInfo("a", "A", "1"), "t")
    for update in updates:
        session.apply_update(update if isinstance(update, dict) else {"sessionUpdate": update}, "t")
    state = session.to_wire()
    assert len(state["tools"]) <= 50
    assert all(isinstance(tool[key], str) for tool in state["tools"] for key in ("id", "title", "kind", "status"))


def test_a_transcript_keeps_its_end() -> None:
    transcript = Transcript()
    for number in range(3000):
        transcript.add(SPEECH, f"piece {number} ")
        transcript.add(EVENT, "- " + "x" * 500)
    text = transcript.render("Title")
    assert len(text) < TRANSCRIPT_BYTES + 100_000
    assert text.startswith("# Title\n\n*What was before is no longer kept.*")
    assert "piece 2999" in text
    assert "piece 1 " not in text


@pytest.mark.parametrize(("levels", "omitted"), [(RAW_LEVELS, 10 * 2 * RAW_LEVELS), (RAW_LEVELS + 1, 11), (1000, 11)])
def test_input_that_nests_too_deep_is_left_out_and_said(levels: int, omitted: int) -> None:
    given = orjson.loads(b"[" * levels + b"]" * levels)
    shown, found = bound_tool_call({"rawInput": given, "content": [given] * (MAX_CONTENTS + 10)})
    assert shown["rawInput"] == (given if levels == RAW_LEVELS else "it nests too deep to be shown")
    assert found == omitted


@pytest.mark.parametrize("innermost", [b"", b"1", b'{"a":1}'])
def test_what_is_in_the_innermost_list_is_no_further_level(innermost: bytes) -> None:
    levels = RAW_LEVELS - innermost.startswith(b"{")
    given = orjson.loads(b"[" * levels + innermost + b"]" * levels)
    shown, _ = bound_tool_call({"rawInput": given})
    assert shown["rawInput"] == given


class Opener:
    """An agent that gives a new session this id."""

    info = AgentInfo("scripted", "Scripted", "1")

    def __init__(self, session_id: Any) -> None:
        self.session_id = session_id

    async def request(self, method: str, params: Any) -> Any:
        return {"sessionId": self.session_id}


@pytest.mark.parametrize("session_id", [None, 7, "", "x" * 257, "two\nlines", "\u202eturned", "\x1b[2J"])
async def test_an_agent_whose_session_has_no_proper_id_is_refused(session_id: Any) -> None:
    with pytest.raises(AgentFault, match="without the id of a session"):
        await open_session(Opener(session_id), "/work", [])


async def test_an_id_that_looks_like_a_path_is_one_part_of_a_uri() -> None:
    session_id, _ = await open_session(Opener("../a b/state"), "/work", [])
    assert make_uri(session_id) == "acp://session/..%2Fa%20b%2Fstate"


def test_the_paths_that_a_session_tells_of_are_bounded_together() -> None:
    session = AgentSession("s", "/", AgentInfo("a", "a", "1"), "now")
    for number in range(300):
        places = [{"path": f"/{number}/{place}/{'d' * 4000}"} for place in range(20)]
        call = {"toolCallId": f"c-{number}", "kind": "edit", "status": "completed", "locations": places}
        session.apply_update({"sessionUpdate": "tool_call", **call}, "now")
    wire = session.to_wire()
    assert sum(len(path) for each in wire["tools"] for path in each["paths"]) <= 50 * PATHS_CHARACTERS
    assert 0 < sum(map(len, wire["changed"])) <= CHANGED_CHARACTERS
    session.begin_turn("next", "now")
    session.apply_update({"sessionUpdate": "tool_call", **call, "toolCallId": "next"}, "now")
    assert wire["changed"] != session.to_wire()["changed"] != []


def test_a_prompt_is_bounded_in_bytes() -> None:
    check_prompt("x" * PROMPT_BYTES)
    with pytest.raises(AgentFault, match=f"the prompt has {PROMPT_BYTES + 2} bytes"):
        check_prompt("ä" * (PROMPT_BYTES // 2 + 1))
