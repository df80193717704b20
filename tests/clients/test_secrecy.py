"""Which values are taken for secrets: for a reason that can be stated, and not every value."""

import pytest

from hubbub_local.secrecy import (
    find_prompted_paths,
    find_secret_reason,
    find_secrets,
    is_random,
    make_prompted_secret,
    replace_secret,
)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("GITHUB_TOKEN", "abc", "is named like a secret"),
        ("apiKey", "abc", "is named like a secret"),
        ("DB_PASSWORD", "hunter2", "is named like a secret"),
        ("X-Api-Key", "abc", "is named like a secret"),
        ("SEARCH_KEY", "abc", "is named like a secret"),
        ("Authorization", "Bearer abcdefgh", "is named like a secret"),
        ("AWS_SECRET_ACCESS_KEY", "abc", "is named like a secret"),
        ("ANYTHING", "ghp_0123456789abcdef", "begins like a token of GitHub"),
        ("ANYTHING", "Bearer eyJhbGciOiJIUzI1NiJ9.e30", "begins like a JWT"),
        ("DATABASE", "postgres://me:pw@db/x", "has a password in a url"),
        ("ANYTHING", "q8Zr3Lx0TnV5bWc7YpK2", "looks random"),
        ("ANYTHING", "9f86d081884c7d659a2feaa0c55ad015", "looks random"),
    ],
)
def test_a_secret_is_known_by_its_name_its_beginning_or_its_randomness(name: str, value: str, why: str) -> None:
    assert find_secret_reason(name, value) == why


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOG_LEVEL", "debug"),
        ("TOKEN_FILE", "x"),
        ("GITHUB_TOKEN", "/run/secrets/token"),
        ("GITHUB_TOKEN", "${GITHUB_TOKEN}"),
        ("Authorization", "Bearer ${keyring:hubbub/x/Authorization}"),
        ("USE_TOKEN", "true"),
        ("MAX_TOKENS", "4096"),
        ("AUTH_TYPE", "whatever"),
        ("AUTHOR", "Ada Lovelace"),
        ("MONKEY", "banana"),
        ("PUBLIC_KEY", "banana"),
        ("URL", "https://example.com/a/very/long/path/with/9/parts"),
        ("ID", "123e4567-e89b-12d3-a456-426614174000"),
        ("PACKAGE", "@modelcontextprotocol/server-filesystem"),
        ("MODEL", "claude-sonnet-4-20250514"),
        ("EMPTY_TOKEN", ""),
        ("WORDS", "modelcontextprotocolserverfilesystem2"),
    ],
)
def test_what_is_plain_is_no_secret(name: str, value: str) -> None:
    assert find_secret_reason(name, value) is None


def test_secrets_are_found_in_variables_headers_arguments_and_queries_and_replaced_there() -> None:
    spec = {
        "command": "x",
        "args": ["--token", "abc", "--password=pw", "plain", "--verbose", "--db", "postgres://a:b@h/d"],
        "env": {"KEY": "k$${1}", "LEVEL": "2"},
    }
    found = find_secrets(spec)
    assert [(each.where, each.value) for each in found] == [
        ("env KEY", "k${1}"),
        ("args token", "abc"),
        ("args password", "pw"),
        ("args db", "postgres://a:b@h/d"),
    ]
    for each in found:
        spec = replace_secret(spec, each, "${r}")
    assert spec["args"] == ["--token", "${r}", "--password=${r}", "plain", "--verbose", "--db", "${r}"]
    assert spec["env"] == {"KEY": "${r}", "LEVEL": "2"}
    assert find_secrets(spec) == []
    url = {"url": "https://x.example/mcp?team=a&api_key=k1", "headers": {"Cookie": "a=b"}}
    for each in find_secrets(url):
        url = replace_secret(url, each, "${r}")
    assert url == {"url": "https://x.example/mcp?${r}", "headers": {"Cookie": "${r}"}}


def test_randomness_needs_length_and_both_letters_and_digits() -> None:
    assert not is_random("q8Zr3Lx0TnV5")
    assert not is_random("1" * 40)
    assert not is_random("abcdefghijklmnopqrstuvwxyz")


def test_what_is_asked_for_as_a_secret_is_one_whatever_its_name() -> None:
    spec = {"command": "x", "args": ["a", "--to=${input:k}"], "env": {"PLAIN": "${input:k}", "OTHER": "${input:l}"}}
    ways = find_prompted_paths(spec, ["k"])
    assert ways == [("args", 1), ("env", "PLAIN")]
    spec = {"command": "x", "args": ["a", "--to=v"], "env": {"PLAIN": "v", "OTHER": "w"}}
    found = [make_prompted_secret(spec, way) for way in ways]
    assert [(each.where, each.value) for each in found] == [("args argument 2", "--to=v"), ("env PLAIN", "v")]
    assert find_prompted_paths({"url": "https://x.example/${input:k}"}, ["k"]) == [("url",)]
