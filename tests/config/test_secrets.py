"""What is secret in a configuration, and how it is kept out of what is said."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.config import ServerConfig
from hubbubd.config.servers import secrecy
from hubbubd.errors import Category, Fault, PermissionDenied
from hubbubd.redaction import MARK, MAX_WORDS, REDACTION, Redaction

SECRET = {"name": "x", "url": "https://x.example/mcp?key=canary-q&v=2", "headers": {"A": "Bearer canary-h"}}


def test_a_configuration_shows_its_secrets_to_nobody_who_does_not_ask() -> None:
    local = ServerConfig.model_validate({"name": "x", "command": "x", "env": {"K": "canary-e"}})
    remote = ServerConfig.model_validate(SECRET)
    for shown in (repr(local), str(local), local.model_dump_json(), remote.model_dump_json(), f"{remote.headers}"):
        assert "canary" not in shown
    assert json.loads(remote.model_dump_json())["url"].startswith("https://x.example/mcp?")


def test_a_configuration_that_the_store_kept_is_whole_again_with_its_secrets() -> None:
    config = ServerConfig.model_validate(SECRET)
    stored = ServerConfig.model_validate_json(config.model_dump_json())
    assert stored.lacks_secrets
    assert not config.lacks_secrets
    whole = stored.with_secrets(json.loads(json.dumps(config.collect_secrets())))
    assert whole == config
    assert whole.fingerprint == config.fingerprint


def test_what_has_no_secrets_keeps_none() -> None:
    plain = ServerConfig.model_validate({"name": "x", "url": "https://x.example/mcp"})
    assert plain.collect_secrets() == {}
    assert ServerConfig.model_validate_json(plain.model_dump_json()) == plain


def test_known_secrets_are_taken_out_of_texts_and_all_that_holds_them() -> None:
    redaction = Redaction()
    redaction.set_secrets("a", ["Bearer canary-one", "short", "canary-one-and-more"])
    assert redaction.redact_text("x canary-one-and-more canary-one short") == f"x {MARK} {MARK} short"
    nested: dict[str, Any] = {"canary-one": [1, ("canary-one", None)], "b": b"\xffcanary-one"}
    assert redaction.redact_value(nested) == {"canary-one": [1, [MARK, None]], "b": b"\xff" + MARK.encode()}


def test_names_of_fields_stay_where_a_secret_is_written_like_one() -> None:
    redaction = Redaction()
    redaction.set_secrets("a", ["permission", "exit_code", "timestamp"])
    assert redaction.redact_value({"permission": "x permission"}) == {"permission": f"x {MARK}"}


def test_names_within_a_field_are_texts_that_anybody_may_have_written() -> None:
    redaction = Redaction()
    redaction.set_secrets("a", ["permission", "canary-one"])
    said = {"permission": [{"canary-one": 1}], "data": {"of": {"canary-one": 2}}}
    assert redaction.redact_value(said) == {"permission": [{MARK: 1}], "data": {"of": {MARK: 2}}}
    assert redaction.redact_value([("event", {"permission": 1}, 0.5)]) == [["event", {"permission": 1}, 0.5]]


@pytest.mark.parametrize("shown", ["s3cr%2Ft-k%2By-4711", "s3cr/t-k+y-4711", "s3cr/t-k%2By-4711"])
def test_the_value_of_a_query_is_known_as_it_is_written_and_as_it_is_meant(shown: str) -> None:
    url = "https://mcp.example.com/mcp?api_key=s3cr%2Ft-k%2By-4711&x=1"
    redaction = Redaction()
    redaction.set_secrets(
        "a", ServerConfig.model_validate({"name": "a", "url": url}).list_known_secrets(), whole_only=True
    )
    assert redaction.redact_text(f"no such key: {shown}.") == f"no such key: {MARK}."


def test_a_header_is_known_word_by_word_and_as_it_stands_in_a_url() -> None:
    config = ServerConfig.model_validate(
        {"name": "a", "url": "https://mcp.example.com", "headers": {"Authorization": "Bearer k/y=canary"}}
    )
    redaction = Redaction()
    redaction.set_secrets("a", config.list_known_secrets(), whole_only=True)
    for shown in ("k/y=canary", "Bearer k/y=canary", "k%2Fy%3Dcanary", "Bearer%20k%2Fy%3Dcanary"):
        assert redaction.redact_text(f"({shown})") in (f"({MARK})", f"(Bearer {MARK})"), shown


def test_a_secret_of_any_length_is_taken_out_whole_and_of_its_words_a_bounded_number() -> None:
    words = [f"canary-{number:05}" for number in range(20_000)]
    long, redaction = " ".join(words), Redaction()
    redaction.set_secrets("a", [long])
    assert redaction.redact_text(f"x {long} y") == f"x {MARK} y"
    assert redaction.redact_text(f"{words[0]} {words[MAX_WORDS - 1]}") == f"{MARK} {MARK}"
    assert (
        redaction.redact_text(words[MAX_WORDS]) == words[MAX_WORDS]
    )  # with all of them a pattern takes seconds to make
    assert redaction.redact_value({"a": [long]}) == {"a": [MARK]}
    redaction.set_secrets("a", [])
    assert redaction.redact_text(long) == long


def test_what_a_stranger_chose_makes_no_word_of_the_hub_a_secret() -> None:
    redaction = Redaction()
    redaction.set_secrets("a", ["the connection finished", "opaque-token"], whole_only=True)
    assert redaction.redact_text("the connection is finished") == "the connection is finished"
    assert redaction.redact_text("the connection finished: opaque-token") == f"{MARK}: {MARK}"


def test_an_owner_who_has_new_secrets_has_the_old_ones_no_longer() -> None:
    redaction = Redaction()
    redaction.set_secrets("a", ["canary-one"])
    redaction.set_secrets("b", ["canary-one"])
    redaction.set_secrets("a", ["canary-two"])
    assert redaction.redact_text("canary-one canary-two") == f"{MARK} {MARK}"
    redaction.set_secrets("b", [])
    assert redaction.redact_text("canary-one canary-two") == f"canary-one {MARK}"


def test_errors_and_faults_have_no_known_secret_from_the_beginning() -> None:
    REDACTION.set_secrets("test", ["canary-known"])
    try:
        denied = PermissionDenied("no canary-known", metadata={"command": "x canary-known"})
        fault = Fault(
            code="X", category=Category.SERVER, message="canary-known", details={"stderr": ["a canary-known"]}
        )
    finally:
        REDACTION.set_secrets("test", [])
    assert "canary-known" not in f"{denied!s}{denied.message}{denied.metadata}{fault}"


@pytest.mark.parametrize(
    ("allow", "deny", "name", "has"),
    [
        (["*"], [], "anything", True),
        (["*"], [], None, True),
        (["*"], ["delete_*"], "delete_all", False),
        (["*"], ["delete_*"], "DELETE_all", False),
        (["*"], ["delete_*"], " delete_all\n", False),
        (["*"], ["delete_*"], "\uff44elete_all", False),
        (["*"], ["delete_*"], "read", True),
        (["*"], ["Delete_*"], "delete_all", False),
        (["read*"], [], "read", True),
        (["read*"], [], "Read", False),
        (["read*"], [], "write", False),
        (["read*"], ["*"], "read", False),
        ([], [], "read", False),
        (["read"], [], ["read"], False),
        (["read"], [], None, False),
        (["*"], ["x"], {"name": "y"}, False),
    ],
)
def test_tools_are_allowed_by_patterns_and_denied_generously(
    allow: list[str], deny: list[str], name: object, has: bool
) -> None:
    config = ServerConfig.model_validate({"name": "x", "command": "x", "allow_tools": allow, "deny_tools": deny})
    assert config.has_tool(name) is has


@pytest.mark.parametrize(
    ("name", "value", "redacted"),
    [
        ("MODE", "properties", False),
        ("REGION", "europe-central", False),
        ("API_TOKEN", "properties", True),
        ("db_password", "correct horse", True),
        ("Authorization", "Bearer abcdefgh", True),
        ("MODE", "pr0perties", True),
        ("GITHUB_PAT", "correcthorsebatterystaple", True),
        ("github-pat", "correcthorsebatterystaple", True),
        ("PATTERN", "correcthorsebatterystaple", False),
        ("POSTGRES_PW", "correcthorsebatterystaple", True),
        ("AUTH", "disabled", False),
        ("KEY_STORE", "/etc/keys/one", False),
        ("ID", "7281936455", False),
        ("MAX_BYTES", "16777216", False),
        ("PIN", "7281936455", True),
        ("NO_PROXY", "127.0.0.1", False),
        ("no_proxy", "127.0.0.1,localhost,.internal4711.example", False),
        ("LISTEN", "127.0.0.1", False),
        ("LISTEN", "127.0.0.1:8080", False),
        ("LISTEN", "[::1]:8080", False),
        ("LISTEN", "0.0.0.0:8080,localhost:8081", False),
        ("TOKEN_URL", "http://127.0.0.1:8080", False),
        ("HOST", "db4711.example", False),
        ("PGHOST", "db4711.example", True),
        ("DB_HOST", "db4711.example", False),
        ("LANG", "en_US.UTF-8", False),
        ("LC_ALL", "en_US.UTF-8", False),
        ("PORT", "80808080", False),
        ("TERM", "xterm-256color", False),
        ("BASE", "https://api4711.example/v2/mcp", False),
        ("BASE", "https://ada:pa55word@api4711.example/v2", True),
        ("HOST", "ada:pa55word@api4711.example", True),
        ("BASE", "https://api4711.example/v2?id=4711", True),
        ("HOOK", "https://hooks.example/services/T0/B0/a1b2c3d4e5f6a7b8c9", True),
        ("HOOK", "https://api.example/bot4711:AAbbCCddEEffGG/send", True),
        ("CACHE", "./cache/v2/files", False),
        ("CACHE", "C:\\cache4711", False),
        ("pwd", "correcthorsebatterystaple", True),
    ],
)
def test_a_value_is_a_secret_by_its_name_and_by_its_form(name: str, value: str, redacted: bool) -> None:
    for member in ("env", "headers"):
        url = {"url": "https://a.example"} if member == "headers" else {"command": "x"}
        redaction = Redaction()
        config = ServerConfig.model_validate({"name": "a", member: {name: value}, **url})
        redaction.set_secrets("a", config.list_known_secrets(), whole_only=True)
        assert (MARK in redaction.redact_text(f"it said: {value}.")) is redacted


def test_of_a_value_of_many_words_those_that_are_none_stay() -> None:
    config = ServerConfig.model_validate(
        {"name": "a", "command": "x", "env": {"OPTIONS": "--on 127.0.0.1 canary-4711"}}
    )
    redaction = Redaction()
    redaction.set_secrets("a", config.list_known_secrets(), whole_only=True)
    assert redaction.redact_text("127.0.0.1 said canary-4711") == f"127.0.0.1 said {MARK}"


WORDLY = st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=20)
"""A secret that looks like words."""


@given(st.sampled_from(["TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "PAT", "CREDENTIAL", "AUTH"]), WORDLY)
def test_what_a_name_calls_secret_is_redacted_whatever_it_looks_like(word: str, value: str) -> None:
    for name in (word, f"GITHUB_{word}", f"x-{word.lower()}", f"{word}_2"):
        assert value in secrecy.list_spellings(name, value)


@given(st.text(), st.text())
def test_any_name_and_value_can_be_judged(name: str, value: str) -> None:
    assert secrecy.is_secret(name, value) in (True, False)
    secrecy.list_spellings(name, value)
