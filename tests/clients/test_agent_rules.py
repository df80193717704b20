"""What an agent's rules allow: tables, no hub."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubbub_agent.models import chat
from hubbub_agent.models.endpoint import Chat
from hubbub_agent.rules.limits import DAY_S, NO_USAGE, ModelUsage, OverLimit, UsageLimits, UsageMeter
from hubbub_agent.rules.problems import AnswerProblem, ConfigProblem
from hubbub_agent.rules.rulebook import load_rules, parse_answer, parse_rules
from hubbub_client.data.records import PendingRequest

from .agent_requests import request

SPOKEN = request(
    "sampling", messages=[{"role": "user", "content": {"type": "text", "text": "Say hi"}}], systemPrompt="Be kind"
)
PAGE = request("elicitation_url", message="Sign in", url="https://login.example.org/x")


GIT = request(codex_command=["bash", "-lc", "git status"], codex_cwd="/w/shop/../shop")
TWO = request(
    codex_changes={"/w/a.py": {"type": "delete", "content": ""}, "/w/../etc/x": {"type": "add", "content": ""}}
)
MOVED = request(
    codex_changes={"/w/a.py": {"type": "update", "unified_diff": "", "move_path": "/etc/b"}}, codex_grant_root="/w"
)
IN_W = {"matches": "^/w/"}

AMOUNT = request(
    requestedSchema={
        "properties": {
            "amount": {"type": "number", "default": 3},
            "branch": {"type": "string", "default": "feature/x"},
            "stage": {"type": "string", "enum": ["staging"]},
            "sure": {"type": "boolean", "default": True},
            "other": {"type": "number"},
        }
    }
)


@pytest.mark.parametrize(
    ("rule", "asked", "fits"),
    [
        ({"accept": True}, request(), True),
        ({"accept": True}, SPOKEN, False),
        ({"accept": True}, PAGE, False),
        ({"accept": True, "kind": "elicitation_url", "host": "*.example.org"}, PAGE, True),
        ({"accept": True, "kind": "elicitation_url", "host": "example.org"}, PAGE, False),
        ({"accept": True, "kind": "elicitation_url", "host": "*"}, replace(PAGE, request={"url": "https://["}), True),
        ({"decline": True}, PAGE, True),
        ({"text": "hi"}, SPOKEN, True),
        ({"text": "hi"}, request(), False),
        ({"reject": "no"}, request("roots"), True),
        ({"leave": True}, request("roots"), True),
        ({"accept": True, "server": "shop*"}, request(), True),
        ({"accept": True, "server": "shop"}, request(), False),
        ({"accept": True, "says": "(?i)WHERE"}, request(), True),
        ({"accept": True, "says": "^to"}, request(), False),
        ({"text": "hi", "says": "Say hi$"}, SPOKEN, True),
        ({"text": "hi", "says": "^Be kind"}, SPOKEN, True),
        ({"accept": True, "title": "^Receipt$"}, request(), True),
        ({"accept": True, "title": "^E-mail$"}, request(), True),
        ({"accept": True, "title": "Invoice"}, request(), False),
        ({"accept": True, "fields": {"email": "string"}}, request(), True),
        ({"accept": True, "fields": {"email": "any"}}, request(), True),
        ({"accept": True, "fields": {"email": "integer"}}, request(), False),
        ({"accept": True, "fields": {"name": "string"}}, request(), False),
        ({"accept": True, "fields": {"email": "string"}, "other_fields": False}, request(), False),
        ({"accept": True, "fields": {"email": "string", "keep": "boolean"}, "other_fields": False}, request(), True),
        ({"accept": True, "fields": {"email": "any"}}, request(requestedSchema={"properties": [1]}), False),
        ({"accept": True, "agent": {"command": "git status"}}, GIT, True),
        ({"approve": True, "agent": {"command": {"matches": "^git (status|diff)$"}, "folder": "/w/shop"}}, GIT, True),
        ({"accept": True, "agent": {"command": "git status", "folder": "/w"}}, GIT, False),
        ({"accept": True, "agent": {"command": "git"}}, GIT, False),
        ({"accept": True, "agent": {"folder": "/w/shop"}}, GIT, False),
        ({"accept": True, "agent": {"command": "git status", "file": IN_W}}, GIT, False),
        ({"accept": True, "agent": {"command": {"matches": "^git"}}}, request(), False),
        ({"accept": True, "agent": {}}, request(), False),
        ({"decline": True, "agent": {"file": {"matches": "."}}}, TWO, True),
        ({"accept": True, "agent": {"file": IN_W}}, TWO, False),
        ({"accept": True, "agent": {"file": IN_W, "grant": "/w"}}, MOVED, False),
        ({"accept": True, "agent": {"file": {"matches": "^/(w|etc)/"}}}, MOVED, False),
        ({"accept": True, "agent": {"file": {"matches": "^/(w|etc)/"}, "grant": "/w"}}, MOVED, True),
        ({"accept": True, "values": {"amount": 3}}, AMOUNT, True),
        ({"accept": True, "values": {"amount": 4}}, AMOUNT, False),
        ({"accept": True, "values": {"amount": {"min": 3, "max": 3}}}, AMOUNT, True),
        ({"accept": True, "values": {"amount": {"max": 2.5}}}, AMOUNT, False),
        ({"accept": True, "values": {"branch": {"matches": "^feature/"}}}, AMOUNT, True),
        ({"accept": True, "values": {"branch": {"matches": "^main$"}}}, AMOUNT, False),
        ({"accept": True, "values": {"stage": {"one_of": ["test", "staging"]}}}, AMOUNT, True),
        ({"accept": True, "values": {"sure": 1}}, AMOUNT, False),
        ({"accept": True, "values": {"sure": True, "amount": 3}}, AMOUNT, True),
        ({"accept": True, "values": {"other": {"min": 0}}}, AMOUNT, False),
        ({"accept": True, "values": {"branch": {"min": 0}}}, AMOUNT, False),
        ({"approve": True}, request(), True),
        ({"approve": True}, PAGE, False),
        ({"escalate": "look twice"}, PAGE, True),
        ({"accept": True, "says": "x"}, replace(request(), request=None), False),
        ({"text": "hi", "says": "x"}, request("sampling", messages=[7, {"content": [None, {"text": 3}]}]), False),
    ],
)
def test_a_rule_fits_what_meets_all_its_conditions(rule: dict[str, Any], asked: PendingRequest, fits: bool) -> None:
    found = parse_rules({"rule": [rule, {"accept": True, "server": "nobody"}]}).find(asked)
    assert (found is not None) == fits


def test_the_first_rule_that_fits_decides() -> None:
    book = parse_rules(
        {
            "rule": [
                {"name": "not secrets", "says": "secret", "leave": True},
                {"accept": {"email": "a@example.org"}, "title": "Receipt"},
                {"decline": True},
            ]
        }
    )
    for message, name, answer in (
        ("the secret?", "not secrets", None),
        ("where?", "rule 2", {"accept": {"email": "a@example.org"}}),
    ):
        found = book.find(request(message=message))
        assert found is not None
        assert (found.name, found.rule.fixed_answer(request(message=message))) == (name, answer)
    assert book.kinds == ["elicitation_form", "elicitation_url"]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({}, "rule: is required"),
        ({"rule": []}, "rule: "),
        ({"rule": [{"accept": True, "colour": 1}]}, "rule 1.colour: unknown key; docs/agents.md lists all keys"),
        ({"rule": [{"accept": True, "sayz": "x"}]}, "rule 1.sayz: unknown key; did you mean 'says'?"),
        ({"rule": [{"accept": True}, {"name": "b", "accept": True, "sayz": ""}]}, "rule 'b'.sayz: "),
        ({"limits": {"token_per_hour": 1}, "rule": [{"accept": True}]}, "did you mean 'tokens_per_hour'?"),
        ({"capcity": 1, "rule": [{"accept": True}]}, "capcity: unknown key; did you mean 'capacity'?"),
        ({"rule": [{"server": "x"}]}, "rule 1: exactly one of accept"),
        ({"rule": [{"accept": True, "decline": True}]}, "not accept, decline"),
        ({"rule": [{"accept": True, "kind": "song"}]}, "rule 1.kind.0: "),
        ({"rule": [{"accept": True, "kind": "sampling"}]}, "rule 1: accept is no answer to sampling"),
        ({"rule": [{"accept": True, "kind": "elicitation_url"}]}, "names their host"),
        ({"rule": [{"accept": True, "says": "("}]}, "rule 1.says: not a regular expression"),
        ({"rule": [{"command": []}]}, "rule 1.command: "),
        ({"rule": [{"command": ["x"], "on_error": "reject"}]}, "on_error"),
        ({"rule": [{"chat": "gone"}]}, "rule 1.chat: there is no [chat.gone]"),
        ({"rule": [{"leave": True}]}, "none of them answers anything"),
        ({"capacity": 0, "rule": [{"accept": True}]}, "capacity: "),
        ({"limits": {"answers_per_minute": 0}, "rule": [{"accept": True}]}, "limits.answers_per_minute: "),
        (
            {"chat": {"c": {"base_url": "ftp://x", "model": "m"}}, "rule": [{"chat": "c"}]},
            "chat.c.base_url: ",
        ),
        (
            {"chat": {"c": {"base_url": "http://x", "model": "m", "api_key": "k"}}, "rule": [{"chat": "c"}]},
            "chat.c.api_key: ",
        ),
        *(
            ({"chat": {"c": {"base_url": "http://x", "model": "m"} | wrong}, "rule": [{"chat": "c"}]}, says)
            for wrong, says in (
                ({"base_url": "http://x:99999"}, "chat.c.base_url: needs a host, and perhaps a port"),
                ({"base_url": "http://?x"}, "chat.c.base_url: needs a host"),
                ({"base_url": "http://x\x7f"}, "chat.c.base_url: needs a host"),
                ({"headers": {"x": "a\nb"}}, "chat.c.headers.x: "),
                ({"api_key_header": "my key"}, "chat.c.api_key_header: "),
                ({"input_price": float("inf")}, "chat.c.input_price: "),
            )
        ),
        ({"limits": {"cost_per_day": float("inf")}, "rule": [{"accept": True}]}, "limits.cost_per_day: "),
    ],
)
def test_rules_that_cannot_be_used_are_refused_by_their_key(document: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigProblem) as caught:
        parse_rules(document)
    assert says in str(caught.value)


def test_a_file_that_is_no_toml_is_refused_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text("[[rule")
    for each in (file, tmp_path / "missing"):
        with pytest.raises(ConfigProblem, match=str(each)):
            load_rules(each)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ({}, None),
        ({"leave": True}, None),
        ({"accept": {"a": 1}}, {"accept": {"a": 1}}),
        ({"accept": True}, {"accept": True}),
        ({"decline": True}, {"decline": True}),
        ({"text": "x"}, {"text": "x"}),
        ({"result": {"roots": []}}, {"result": {"roots": []}}),
        ({"reject": "no"}, {"reject": "no"}),
    ],
)
def test_what_a_program_prints_is_one_answer_or_none(said: Any, answer: Any) -> None:
    assert parse_answer(said) == answer


@pytest.mark.parametrize(
    "said",
    [
        [],
        7,
        {"accept": False},
        {"accept": 1},
        {"decline": False},
        {"decline": "yes"},
        {"text": 1},
        {"result": []},
        {"a": 1},
        {"accept": {}, "decline": True},
        {"command": ["x"]},
        {"approve": True},
        {"deny": "no"},
    ],
)
def test_what_is_not_an_answer_is_refused(said: Any) -> None:
    with pytest.raises(ValueError):
        parse_answer(said)


def spend(meter: UsageMeter, use: ModelUsage, now: float) -> None:
    number = meter.reserve(use, now)
    assert number is not None
    meter.settle(number, use, now)


def test_a_limit_that_is_reached_is_named_until_its_time_is_over() -> None:
    meter = UsageMeter(UsageLimits(answers_per_minute=2, tokens_per_hour=100, cost_per_day=1.0))
    meter.count_answer(0)
    assert meter.reached_limit(1) is None
    meter.count_answer(30)
    assert meter.reached_limit(59) == "answers_per_minute"
    assert meter.reached_limit(60) is None
    spend(meter, ModelUsage(100, 0.5), 60)
    assert meter.reached_limit(61) == "tokens_per_hour"
    assert meter.reached_limit(3660) is None
    spend(meter, ModelUsage(1, 0.5), 4000)
    assert meter.reached_limit(8000) == "cost_per_day"
    assert meter.reached_limit(60 + DAY_S) is None


def test_what_is_set_aside_keeps_requests_at_the_same_moment_within_a_limit() -> None:
    meter = UsageMeter(UsageLimits(tokens_per_hour=100, cost_per_day=1.0))
    first = meter.reserve(ModelUsage(60, 0.1), 0)
    assert first is not None
    assert meter.reserve(ModelUsage(60, 0.1), 0) is None
    second = meter.reserve(ModelUsage(40, 0.1), 0)
    assert second is not None
    meter.settle(first, ModelUsage(10, 0.1), 1)
    third = meter.reserve(ModelUsage(50, 0.1), 1)
    assert third is not None
    meter.settle(second, NO_USAGE, 2)
    meter.settle(third, ModelUsage(50, 0.1), 2)
    assert meter.reached_limit(3) is None
    with pytest.raises(OverLimit, match="tokens_per_hour"):
        meter.reserve(ModelUsage(41, 0.1), 3)
    with pytest.raises(OverLimit, match="cost_per_day"):
        meter.reserve(ModelUsage(40, 0.9), 3)
    spend(meter, ModelUsage(40, 0.8), 3)
    assert meter.reached_limit(3) == "tokens_per_hour"


def test_the_most_that_a_sampling_takes_is_no_less_than_a_token_for_each_of_its_bytes() -> None:
    body = chat.build_request(CHAT, {"messages": [{"role": "user", "content": {"type": "text", "text": "ä" * 1000}}]})
    most = chat.max_usage(body)
    assert most.input >= 2000
    assert most.output == CHAT.max_tokens


CHAT = Chat(base_url="http://x/v1", model="small", models={"claude-*": "big"}, system="House rules", max_tokens=50)


def test_a_sampling_becomes_a_chat_completion() -> None:
    use = {"type": "tool_use", "id": "u1", "name": "add", "input": {"a": 1}}
    result = {"type": "tool_result", "toolUseId": "u1", "content": [{"type": "text", "text": "2"}]}
    body = chat.build_request(
        CHAT,
        {
            "systemPrompt": "Be kind",
            "maxTokens": 900,
            "temperature": 0.2,
            "stopSequences": ["a", "b", "c", "d", "e"],
            "modelPreferences": {"hints": [{"name": "gpt"}, {"name": "claude-x"}]},
            "tools": [{"name": "add", "description": "Adds", "inputSchema": {"type": "object"}}],
            "toolChoice": {"mode": "required"},
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Look"},
                        {"type": "image", "mimeType": "image/png", "data": "aa"},
                        {"type": "audio", "mimeType": "audio/wav", "data": "bb"},
                    ],
                },
                {"role": "assistant", "content": use},
                {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
            ],
        },
    )
    function = {"name": "add", "parameters": {"type": "object"}, "description": "Adds"}
    assert body == {
        "model": "big",
        "max_tokens": 50,
        "temperature": 0.2,
        "stop": ["a", "b", "c", "d"],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "messages": [
            {"role": "system", "content": "House rules"},
            {"role": "system", "content": "Be kind"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa"}},
                    {"type": "input_audio", "input_audio": {"data": "bb", "format": "wav"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "u1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "u1", "content": "2"},
            {"role": "user", "content": "And?"},
        ],
    }


def test_what_a_model_cannot_be_shown_is_said() -> None:
    strange = {"role": "user", "content": {"type": "audio", "mimeType": "audio/strange", "data": ""}}
    with pytest.raises(AnswerProblem, match="audio/strange"):
        chat.build_request(CHAT, {"messages": [strange]})


@pytest.mark.parametrize(
    ("message", "why", "content", "stop"),
    [
        ({"content": "hi"}, "stop", {"type": "text", "text": "hi"}, "endTurn"),
        ({"content": "h"}, "length", {"type": "text", "text": "h"}, "maxTokens"),
        (
            {"content": None, "tool_calls": [{"id": "c", "function": {"name": "add", "arguments": '{"a":1}'}}]},
            "tool_calls",
            [{"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}}],
            "toolUse",
        ),
    ],
)
def test_a_completion_becomes_the_answer(message: dict[str, Any], why: str, content: Any, stop: str) -> None:
    said = {"choices": [{"message": message, "finish_reason": why}], "usage": {"prompt_tokens": 3}, "model": "m"}
    reply = chat.parse_reply(said, "asked", with_tools=True)
    assert reply.answer == {"result": {"role": "assistant", "content": content, "model": "m", "stopReason": stop}}
    assert reply.tokens == chat.TokenUsage(3, 0)
    assert reply.tokens.to_model_usage(CHAT.model_copy(update={"input_price": 2.0})) == ModelUsage(3, 6e-6, 1)


@pytest.mark.parametrize(
    ("properties", "content"),
    [
        ({"sure": {"type": "boolean"}}, {"sure": True}),
        ({"sure": {"type": "boolean", "default": False}, "note": {"type": "string"}}, {"sure": True}),
        ({"sure": {"type": "boolean", "default": True}}, True),
        ({"a": {"type": "boolean"}, "b": {"type": "boolean"}}, True),
        ({"note": {"type": "string"}}, True),
        ({}, True),
    ],
)
def test_to_approve_is_to_say_yes_where_there_is_one_yes_or_no(properties: Any, content: Any) -> None:
    found = parse_rules({"rule": [{"approve": True}]}).rule[0]
    assert found.fixed_answer(request(requestedSchema={"properties": properties})) == {"accept": content}


def test_no_text_of_a_server_makes_a_pattern_slow() -> None:
    book = parse_rules({"rule": [{"accept": True, "says": "(a+)+$"}, {"decline": True, "says": "(a|aa)*c"}]})
    assert book.find(request(message="a" * 10_000 + "b")) is None


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)", "(?<!a)b", "a{1000}{1000}{1000}"])
def test_a_pattern_that_could_be_slow_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigProblem, match=r"rule 1\.says: not a regular expression that can be used"):
        parse_rules({"rule": [{"accept": True, "says": pattern}]})


def test_a_wrong_rule_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('capacity = 2\n\n[[rule]]\naccept = true\n\n[[rule]]\nname = "lunch"\nsayz = "x"\naccept = true\n')
    with pytest.raises(ConfigProblem) as caught:
        load_rules(file)
    assert str(caught.value) == f"{file}: rule 'lunch' (line 6).sayz: unknown key; did you mean 'says'?"


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ({"api_key_env": "NO_SUCH"}, "chat.c.api_key_env: the environment has no NO_SUCH"),
        ({"api_key_file": "/no/such"}, "chat.c.api_key_file: "),
    ],
)
def test_a_key_that_is_missing_is_said_by_its_place(key: dict[str, str], says: str) -> None:
    book = parse_rules({"chat": {"c": {"base_url": "http://x", "model": "m", **key}}, "rule": [{"chat": "c"}]})
    with pytest.raises(ConfigProblem, match=says):
        book.check_keys()


def test_a_key_comes_from_the_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = pytest.importorskip("keyring")
    monkeypatch.setattr(keyring, "get_password", lambda *where: {("models", "me"): "k"}.get(where))
    assert Chat(base_url="http://x", model="m", api_key_keyring="models/me").api_key() == "k"
    with pytest.raises(ValueError, match="the keyring has no models/you; store it: keyring set models you"):
        Chat(base_url="http://x", model="m", api_key_keyring="models/you").api_key()
    with pytest.raises(ValueError, match="only one of"):
        Chat(base_url="http://x", model="m", api_key_keyring="models/me", api_key_env="X")
