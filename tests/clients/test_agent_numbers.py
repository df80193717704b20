"""Numbers of servers and endpoints, which the agent does not trust."""

from typing import Any

import pytest

from hubbub_agent.chat import completion, most, reply
from hubbub_agent.rules import Chat

CHAT = Chat(base_url="http://127.0.0.1:1/v1", model="m", max_tokens=500)
ODD = [-1, -100_000, 0, 1, 499, 500, 501, 2**31, 2**63, 2**64, 1e308, 1e400, float("nan"), -1e400, None, "5", True]


@pytest.mark.parametrize("asked", ODD)
def test_a_model_is_asked_for_a_token_at_least_and_at_most_what_the_rule_allows(asked: Any) -> None:
    body = completion(CHAT, {"messages": [], "maxTokens": asked})
    assert 1 <= body["max_tokens"] <= 500
    assert most(body).use(CHAT).tokens > 0


@pytest.mark.parametrize("said", ODD)
def test_what_an_endpoint_says_was_used_is_never_credited(said: Any) -> None:
    choice = {"message": {"content": "x"}, "finish_reason": "stop"}
    tokens = reply({"choices": [choice], "usage": {"prompt_tokens": said}}, "m", with_tools=False).tokens
    assert tokens is not None
    assert tokens.input >= 0
    assert tokens.use(CHAT).tokens >= 0


@pytest.mark.parametrize("temperature", [float("nan"), 1e400, "hot", [1]])
def test_a_temperature_that_is_no_number_is_left_out(temperature: Any) -> None:
    assert "temperature" not in completion(CHAT, {"messages": [], "temperature": temperature})
