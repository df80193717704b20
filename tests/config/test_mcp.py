"""Settings of the MCP endpoint and of its profiles."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubbubd.config import Confinement, HubSettings, ServerConfig, load_settings
from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.errors import ConfigError, InvalidServerConfig

Load = Callable[..., HubSettings]
OTHER = '[servers.other]\ncommand = "x"\n'


def test_hosts_are_not_served_unless_an_address_is_given() -> None:
    assert load_settings([], {}).hub.mcp_listen is None
    assert load_settings([], {"HUBBUBD_MCP_LISTEN": "127.0.0.1:0"}).hub.mcp_listen == "127.0.0.1:0"


@pytest.mark.parametrize("address", ["unix:hub.sock", "192.0.2.1:80", "127.0.0.1", "127.0.0.1:70000"])
def test_hosts_are_served_on_a_port_of_loopback_only_without_tls(address: str) -> None:
    with pytest.raises(ConfigError, match="HUBBUBD_MCP_LISTEN"):
        load_settings([], {"HUBBUBD_MCP_LISTEN": address})


@pytest.mark.parametrize(
    ("given", "taken"),
    [("hub.example.com", "hub.example.com"), ("HUB.local", "hub.local"), ("10.0.0.7", "10.0.0.7"), ("[::1]", "[::1]")],
)
def test_a_host_is_a_name_or_an_address(given: str, taken: str) -> None:
    assert load_settings([], {"HUBBUBD_MCP_HOSTS": f'["{given}"]'}).hub.mcp_hosts == (taken,)


@pytest.mark.parametrize("given", ["", "*", "hub:80", "http://hub", "::1", "hub/x", "a b", "h" * 254])
def test_what_no_host_header_says_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="is not a host"):
        load_settings([], {"HUBBUBD_MCP_HOSTS": f'["{given}"]'})


def test_a_page_of_an_unusual_origin_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"HUBBUBD_MCP_ORIGINS: 0: 'null' is not an origin"):
        load_settings([], {"HUBBUBD_MCP_ORIGINS": '["null"]'})


def test_the_default_profile_is_there_without_being_configured(load: Load) -> None:
    assert load().profiles == {"default": ProfileSettings()}
    assert load("[mcp.profiles.mine]").profiles == {"default": ProfileSettings(), "mine": ProfileSettings()}


PROFILE: dict[str, Any] = {
    "servers": ["git*", "notes"],
    "allow_tools": ["git__*"],
    "deny_tools": ["git__push"],
    "prefix": "always",
    "bare": ["git.*"],
    "max_tool_name": 64,
    "tools": "search",
    "always": ["git__status"],
    "resources": False,
    "prompts": False,
    "instructions": "Be brief.",
    "questions": {"form": "inbox", "url": "host", "sampling": "both", "roots": "host-first", "approval": "both"},
    "people": True,
    "unattended_s": 0,
    "hold_s": 45,
    "on_hold_end": "error",
    "join_s": 60,
    "flatten_schemas": True,
    "alias": {"git.local": "git_l"},
}


def test_every_key_of_a_profile_can_stand_in_toml(load: Load) -> None:
    tables = {"": PROFILE, **{f".{key}": value for key, value in PROFILE.items() if isinstance(value, dict)}}
    lines: list[str] = []
    for place, table in tables.items():
        lines.append(f"[mcp.profiles.default{place}]")
        lines += [f'"{key}" = {json.dumps(value)}' for key, value in table.items() if not isinstance(value, dict)]
    profile = load("\n".join(lines)).profiles["default"]
    assert profile == ProfileSettings(**PROFILE)
    assert PROFILE.keys() == ProfileSettings.model_fields.keys()
    assert [profile.has_server(name) for name in ("git.local", "notes", "web")] == [True, True, False]
    assert [profile.has_tool(name) for name in ("git__log", "git__push", "notes__x")] == [True, False, False]
    assert [profile.pins_tool(name) for name in ("git__status", "git__log")] == [True, False]


def test_profiles_stand_in_json_too_and_another_programs_mcp_is_its_own(load: Load) -> None:
    assert load('{"mcp": {"profiles": {"a": {"prompts": false}}}}', "json").profiles["a"].prompts is False
    assert load('{"servers": {}, "mcp": {"inputs": []}}', "json").mcp_profiles == {}


def test_profiles_of_the_environment_take_the_place_of_those_of_files(load: Load) -> None:
    hub = load("[mcp.profiles.a]", HUBBUBD_MCP_PROFILES='{"b": {}}')
    assert set(hub.mcp_profiles) == {"b"}


def test_a_profile_in_two_files_is_an_error_that_names_both(tmp_path: Path) -> None:
    words: list[str] = []
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text("[mcp.profiles.x]")
        words += ["--config", str(tmp_path / f"{name}.toml")]
    with pytest.raises(ConfigError, match=r"b\.toml: mcp\.profiles\.x: is also in .*a\.toml"):
        load_settings(words, {})


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("max_tool_name = 31", "default.max_tool_name: input should be greater than or equal to 32"),
        ("max_tool_name = 129", "default.max_tool_name: input should be less than or equal to 128"),
        ('hold_s = "x"', 'default.hold_s: must be "auto", or seconds from 0'),
        ("hold_s = -1", 'default.hold_s: must be "auto", or seconds from 0'),
        ("hold_s = nan", 'default.hold_s: must be "auto", or seconds from 0'),
        ("hold_s = true", 'default.hold_s: must be "auto", or seconds from 0'),
        ("unattended_s = 61", "default.unattended_s: input should be less than or equal to 60"),
        ('prefix = "no"', "default.prefix: input should be 'always' or 'never'"),
        ('questions = { form = "all" }', "default.questions.form: input should be 'both', 'host-first', 'host' or"),
        ("questions = 1", "default.questions: must be a table"),
        ("alias = 1", "default.alias: must be a table"),
        ("questions = { forms = 1 }", "default.questions.forms: unknown key"),
        ("tolls = 1", "default.tolls: unknown key; did you mean 'tools'?"),
        ("servers = []", "default.servers: tuple should have at least 1 item"),
        ('instructions = "' + "x" * 2001 + '"', "default.instructions: string should have at most 2000"),
        ('alias = { "a/b" = "x" }', "default.alias.a/b: string should match"),
        ('alias = { a = "x_" }', "default.alias.a: 'x_' is not an alias"),
        ('alias = { a = "x__y" }', "default.alias.a: 'x__y' is not an alias"),
        ('alias = { a = "x.y" }', "default.alias.a: 'x.y' is not an alias"),
        ('alias = { a = "hubbub" }', "default.alias.a: 'hubbub' is the hub itself"),
        ('alias = { a = "x", b = "x" }', ": default.alias.b: 'x' is the alias of a, too"),
        ('alias = { a = "other" }', ": default.alias.a: 'other' is the name of another server"),
        ('servers = ["b*"]\nalias = { a = "x" }', ": default.alias.a: the profile's servers do not include it"),
        ('always = ["x"]', ': default.always: needs tools = "search"'),
        ('bare = ["x"]\nprefix = "never"', ': default.bare: needs prefix = "always"'),
    ],
)
def test_a_wrong_profile_is_refused_by_its_key(load: Load, line: str, error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(f"{OTHER}[mcp.profiles.default]\n{line}\n")
    assert f"hub.toml: mcp.profiles{'' if error.startswith(':') else '.'}{error}" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("mcp = 1", "mcp: must be a table"),
        ("[mcp]\nprofile = {}", "mcp.profile: unknown key; did you mean 'profiles'?"),
        ("[mcp.profiles]\nx = 1", "mcp.profiles.x: must be a table"),
        ('[mcp.profiles."a/b"]', "mcp.profiles.a/b: a name has letters"),
        ("[hub]\nmcp_profiles = {}", "hub.mcp_profiles: in a file, each profile is a table"),
        ('[servers.hubbub]\ncommand = "x"', "servers.hubbub: is the hub's own name"),
    ],
)
def test_what_is_no_table_of_profiles_is_refused_by_its_key(load: Load, text: str, error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(text)
    assert f"hub.toml: {error}" in str(refused.value)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("0", "HUBBUBD_MCP_PROFILES: must be a table of keys and values: [mcp.profiles.NAME] in a file"),
        ("x", "HUBBUBD_MCP_PROFILES: must be a table of keys and values: [mcp.profiles.NAME] in a file"),
        ('{"a": 1}', "HUBBUBD_MCP_PROFILES: a: must be a table of keys and values"),
    ],
)
def test_profiles_of_the_environment_that_are_no_table_are_refused_in_words(load: Load, value: str, error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(HUBBUBD_MCP_PROFILES=value)
    assert error in str(refused.value)


def test_a_server_may_have_its_own_name_as_an_alias(load: Load) -> None:
    assert load(f'{OTHER}[mcp.profiles.default]\nalias = {{ other = "other" }}').profiles["default"].alias


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("hubbub", "name: is the hub's own"),
        ("gh", "name: is the alias of another server: mcp.profiles.default.alias.a"),
    ],
)
def test_a_server_added_over_the_api_cannot_be_confused_with_another(load: Load, name: str, problem: str) -> None:
    hub = load('[mcp.profiles.default]\nalias = { a = "gh" }')
    added = ServerConfig(name=name, transport="http", url="https://example.com/mcp")
    with pytest.raises(InvalidServerConfig, match=problem):
        Confinement.from_settings(hub, {}).check(added, {})
    Confinement.from_settings(hub, {}).check(added.model_copy(update={"name": "a"}), {})
