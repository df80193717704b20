"""Numbers of servers and endpoints, which the agent does not trust."""

import contextlib
from typing import Any

import pytest

from hubbub_agent.models.chat import build_request, max_usage, parse_reply
from hubbub_agent.models.endpoint import Chat

CHAT = Chat(base_url="http://127.0.0.1:1/v1", model="m", max_tokens=500)
ODD = [-1, -100_000, 0, 1, 499, 500, 501, 2**31, 2**63, 2**64, 1e308, 1e400, float("nan"), -1e400, None, "5", True]


@pytest.mark.parametrize("asked", ODD)
def test_a_model_is_asked_for_a_token_at_least_and_at_most_what_the_rule_allows(asked: Any) -> None:
    body = build_request(CHAT, {"messages": [], "maxTokens": asked})
    assert 1 <= body["max_tokens"] <= 500
    assert max_usage(body).to_model_usage(CHAT).tokens > 0


@pytest.mark.parametrize("said", ODD)
def test_what_an_endpoint_says_was_used_is_never_credited(said: Any) -> None:
    choice = {"message": {"content": "x"}, "finish_reason": "stop"}
    tokens = parse_reply({"choices": [choice], "usage": {"prompt_tokens": said}}, "m", with_tools=False).tokens
    unreadable = isinstance(said, str | bool) or said is None or said != said
    assert (tokens is None) == unreadable  # then the whole reservation counts
    assert tokens is None or (tokens.input >= 0 and tokens.to_model_usage(CHAT).tokens >= 0)


@pytest.mark.parametrize(
    "temperature", [float("nan"), 1e400, 10**400, True, "hot", [1]], ids=lambda each: f"{each}"[:9]
)
def test_a_temperature_that_is_no_number_is_left_out(temperature: Any) -> None:
    assert "temperature" not in build_request(CHAT, {"messages": [], "temperature": temperature})


JUNK = [None, 7, "x", [], [1], {}, {"a": 1}, True]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
@pytest.mark.parametrize("place", ["all", "choices", "choice", "message", "content", "tool_calls", "call", "function"])
def test_a_completion_that_is_none_is_no_fault_of_the_agent(place: str, junk: Any) -> None:
    function = junk if place == "function" else {"name": "f", "arguments": "{}"}
    calls = junk if place == "tool_calls" else [junk if place == "call" else {"id": "c", "function": function}]
    told = {"content": junk if place == "content" else "", "tool_calls": calls}
    choice = junk if place == "choice" else {"message": junk if place == "message" else told}
    said: Any = junk if place == "all" else {"choices": junk if place == "choices" else [choice]}
    with contextlib.suppress(ValueError, TypeError, KeyError, IndexError):
        parse_reply(said, "m", with_tools=True)


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_a_usage_that_is_none_costs_no_answer(junk: Any) -> None:
    said = {"choices": [{"message": {"content": "x"}}], "usage": junk}
    assert parse_reply(said, "m", with_tools=False).answer["result"]["content"] == {"type": "text", "text": "x"}
