"""Content for hosts of old revisions: nothing in it that they do not know."""

import json
from typing import Any

import pytest

from hubbubd import payload
from hubbubd.downstream.protocol import revisions

TEXT = {"type": "text", "text": "a"}
LINK: dict[str, Any] = {
    "type": "resource_link",
    "uri": "file:///a",
    "name": "a",
    "description": "The first",
    "annotations": {},
}
AUDIO = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
OWN = {"type": "x-own", "of": "nobody", "_meta": {"a": 1}}
OWN_IN_WORDS = {"type": "text", "text": '{"type":"x-own","of":"nobody"}', "_meta": {"a": 1}}
LINK_IN_WORDS: dict[str, Any] = {"type": "text", "text": "a: file:///a\nThe first", "annotations": {}}
AUDIO_IN_WORDS = {"type": "text", "text": "[audio, audio/wav: this host's revision of MCP has no audio]"}
SEEN: dict[str, list[dict[str, Any]]] = {
    "2024-11-05": [TEXT, LINK_IN_WORDS, AUDIO_IN_WORDS, OWN_IN_WORDS],
    "2025-03-26": [TEXT, LINK_IN_WORDS, AUDIO, OWN_IN_WORDS],
    "2025-06-18": [TEXT, LINK, AUDIO, OWN_IN_WORDS],
    "2025-11-25": [TEXT, LINK, AUDIO, OWN_IN_WORDS],
    "2026-07-28": [TEXT, LINK, AUDIO, OWN_IN_WORDS],
}


def crossed(method: str, result: dict[str, Any], revision: str, origin: str = "2025-11-25") -> Any:
    return json.loads(revisions.render_result(method, payload.dumps(result), revision, origin))


@pytest.mark.parametrize("revision", SEEN)
def test_blocks_that_a_revision_does_not_know_become_text(revision: str) -> None:
    sent: list[dict[str, Any]] = [TEXT, LINK, AUDIO, OWN]
    assert crossed("tools/call", {"content": sent}, revision)["content"] == SEEN[revision]
    prompt: dict[str, Any] = {"messages": [{"role": "user", "content": block} for block in sent]}
    assert [each["content"] for each in crossed("prompts/get", prompt, revision)["messages"]] == SEEN[revision]


@pytest.mark.parametrize("revision", SEEN)
def test_a_type_that_no_revision_knows_becomes_text_where_it_is_alone_too(revision: str) -> None:
    assert crossed("tools/call", {"content": [OWN]}, revision)["content"] == [OWN_IN_WORDS]


def test_a_result_without_such_blocks_is_passed_on_as_it_is() -> None:
    raw = payload.dumps({"content": [TEXT, LINK, {"type": "text", "text": '{"type":"x-own"}'}]})
    assert revisions.render_blocks("tools/call", raw, "2026-07-28") is raw


@pytest.mark.parametrize(("revision", "is_told"), [("2024-11-05", True), ("2025-03-26", True), ("2025-06-18", False)])
def test_what_a_tool_says_in_structure_alone_is_text_where_there_is_no_structure(revision: str, is_told: bool) -> None:
    content = crossed("tools/call", {"content": [], "structuredContent": {"a": 1}}, revision)["content"]
    assert content == ([{"type": "text", "text": '{"a":1}'}] if is_told else [])


def test_structure_that_is_no_object_is_not_lost_before_it_may_be_none() -> None:
    sent = {"content": [], "structuredContent": [1], "resultType": "complete"}
    got = crossed("tools/call", sent, "2025-11-25", "2026-07-28")
    assert got == {"content": [{"type": "text", "text": "[1]"}]}


@pytest.mark.parametrize("broken", [{}, {"content": None}, {"content": "audio"}, {"content": [1, {"type": ["audio"]}]}])
def test_what_is_no_content_stays_as_it_is(broken: dict[str, Any]) -> None:
    sent = {**broken, "_meta": {"said": "audio"}}
    assert crossed("tools/call", sent, "2024-11-05") == sent
    messages: dict[str, Any] = {"messages": [broken, 7, None]}
    assert revisions.render_sampling(messages, "2024-11-05")["messages"][-2:] == [7, None]


def test_a_message_of_a_sampling_with_several_blocks_becomes_several_messages() -> None:
    params: dict[str, Any] = {
        "messages": [{"role": "user", "content": [TEXT, AUDIO]}, {"role": "assistant", "content": TEXT}]
    }
    assert revisions.render_sampling(params, "2025-11-25") == params
    assert revisions.render_sampling(params, "2024-11-05")["messages"] == [
        {"role": "user", "content": TEXT},
        {"role": "user", "content": AUDIO_IN_WORDS},
        {"role": "assistant", "content": TEXT},
    ]
