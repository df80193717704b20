"""Configuration files, ours and those of other programs."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from hubbubd.config import ServerConfig
from hubbubd.config.files import read_file
from hubbubd.errors import ConfigError


def read(tmp_path: Path, text: str, ending: str = "toml") -> tuple[ServerConfig, ...]:
    path = tmp_path / f"hub.{ending}"
    path.write_text(text)
    return read_file(path).servers


def read_json(tmp_path: Path, value: Any) -> tuple[ServerConfig, ...]:
    return read(tmp_path, json.dumps(value), "json")


def test_every_option_of_a_server_can_stand_in_toml(tmp_path: Path) -> None:
    local, remote = read(
        tmp_path,
        """
        [servers.local]
        command = "python"
        args = ["-m", "server"]
        env = { A = "1" }
        cwd = "/srv"
        connect_timeout_s = 1
        call_timeout_s = 2
        call_max_s = 3
        progress_resets_timeout = false
        ping_interval_s = 0
        ping_timeout_s = 4
        retries = -1
        backoff_s = [0.5]
        retryable_errors = ["RATE_LIMITED"]
        max_in_flight = 8
        answer_timeout_s = 5
        auto_reject_on_timeout = false
        timeout_message = "late"
        sampling = false
        elicitation = false
        roots = "ask"
        receiver_tasks = false
        receiver_task_ttl_s = 6
        protocol = "2025-11-25"
        resume = false

        [servers.remote]
        url = "https://example.com/sse"
        transport = "sse"
        headers = { Authorization = "x" }
        roots = [{ uri = "file:///srv" }]
        """,
    )
    assert (local.name, local.transport, local.backoff_s, local.roots) == ("local", "stdio", (0.5,), "ask")
    assert (remote.transport, remote.headers, remote.retries) == ("sse", {"Authorization": SecretStr("x")}, -1)


@pytest.mark.parametrize("section", ["mcpServers", "servers"])
@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}}, "stdio"),
        ({"type": "stdio", "command": "npx"}, "stdio"),
        ({"url": "https://x/mcp", "headers": {"A": "b"}}, "http"),
        ({"type": "http", "url": "https://x/mcp"}, "http"),
        ({"type": "streamable-http", "url": "https://x/mcp"}, "http"),
        ({"type": "streamableHttp", "url": "https://x/mcp"}, "http"),
        ({"type": "sse", "url": "https://x/sse"}, "sse"),
        ({"command": "npx", "disabled": False, "autoApprove": ["a"], "timeout": 60}, "stdio"),
        ({"command": "npx", "retries": 5}, "stdio"),
    ],
)
def test_the_json_of_other_programs_is_understood(
    tmp_path: Path, section: str, entry: dict[str, Any], transport: str
) -> None:
    (server,) = read_json(tmp_path, {section: {"x": entry}, "inputs": [], "globalShortcut": ""})
    assert server.transport == transport
    assert server.command == entry.get("command")


def test_a_disabled_server_is_left_out_whatever_else_it_says(tmp_path: Path) -> None:
    assert read_json(tmp_path, {"mcpServers": {"x": {"disabled": True, "envFile": ".env"}}}) == ()


def test_what_is_not_taken_of_a_server_may_say_what_only_an_editor_knows(tmp_path: Path) -> None:
    entry = {"command": "x", "dev": {"watch": "${workspaceFolder}/**"}, "description": "about ${input:key}"}
    assert [each.name for each in read_json(tmp_path, {"servers": {"x": entry}})] == ["x"]


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    assert read(tmp_path, '\ufeff{"servers": {}}', "json") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[servers.a]\ncomand = 'x'", "servers.a.comand: unknown key; did you mean 'command'?"),
        ("[servers.a]\ncommand = 'x'\nzzz = 1", "servers.a.zzz: unknown key"),
        ("[servers.a]\ncommand = 'x'\ndisabled = true", "servers.a.disabled: unknown key"),
        ("[servers.a]\ncommand = 'x'\nproxy = {}", "servers.a.proxy: unknown key"),
        ("[servers.a]\ncommand = 'x'\nname = 'b'", "servers.a.name: a server is named by its table"),
        ("[servers.'a b']\ncommand = 'x'", "servers.a b: a name has"),
        ("[servers]\na = 1", "servers.a: must be a table"),
        ("servers = []", "servers: must be a table"),
        ("[server.a]", "server: unknown key; did you mean 'servers'?"),
        ("[hub]\nlissten = 'x'", "hub.lissten: unknown key; did you mean 'listen'?"),
        ("hub = 1", "hub: must be a table"),
        ("[servers.a]", "servers.a: a server needs a command that starts it, or the url where it is"),
        ("[servers.a]\ncommand = 'x'\nurl = 'http://x'", "servers.a: a server over http needs a url and no command"),
        ("[servers.a]\nurl = 'ftp://x'", "servers.a: a url starts with http"),
        ("[servers.a]\nurl = 'http://x'\ntransport = 'ws'", "servers.a.transport: input should be 'stdio', 'http'"),
        ("[servers.a]\ncommand = 'x'\nretries = -2", "servers.a.retries: input should be greater"),
        ("[servers.a]\ncommand = 'x'\nbackoff_s = [1, 0]", "servers.a.backoff_s.1: input should be greater"),
        ("[servers.a]\ncommand = 'x'\nargs = 'y'", "servers.a.args: must be a list, such as"),
        ("[servers.a]\ncommand = 'x'\nenv = 1", "servers.a.env: must be a table of keys and values"),
        ("[servers.a]\ncommand = 'x'\noauth = 1", "servers.a.oauth: must be a table of keys and values"),
        ("[servers.a]\ncommand = 'x'\nargs = [1]", "servers.a.args.0: input should be a valid string"),
        ("[servers.a]\ncommand = 'x'\nenv = { A = 1 }", "servers.a.env.A: input should be a valid string"),
        ("[servers.a]\ncommand = 'x'\ncall_timeout_s = inf", "servers.a.call_timeout_s: input should be"),
        ("[servers", "is not valid TOML"),
    ],
)
def test_a_mistake_in_toml_is_named_by_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'hub.toml'}: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "must be an object"),
        ({"mcpserver": {}}, "has none of mcpServers, servers and hub"),
        ({"mcpServers": {}, "servers": {}}, "servers: stands beside mcpServers"),
        ({"mcpServers": {"a": {"type": "ws", "url": "ws://x"}}}, "mcpServers.a.type: must be one of stdio, http"),
        ({"mcpServers": {"a": {"type": 1}}}, "mcpServers.a.type: must be one of"),
        ({"mcpServers": {"a": {"command": "x", "envfile": ".env"}}}, "mcpServers.a.envfile: unknown key"),
        ({"servers": {"a": {"command": "x", "arg": []}}}, "servers.a.arg: unknown key; did you mean 'args'?"),
        ({"hub": {"listen_": 1}}, "hub.listen_: unknown key; did you mean 'listen'?"),
    ],
)
def test_a_mistake_in_json_is_named_by_file_and_key(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_json(tmp_path, value)
    assert str(caught.value).startswith(f"{tmp_path / 'hub.json'}: {message}")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.yaml", b"", "ends in .toml or .json, not '.yaml'"),
        ("a", b"", "ends in .toml or .json, not ''"),
        ("a.json", b"{", "is not valid JSON"),
        ("a.json", b"[" * 100_000, "is not valid JSON"),
        ("a.toml", b"\xff", "cannot be read"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=problem):
        read_file(tmp_path / name)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        read_file(tmp_path / "a.toml")


def test_a_path_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_file(Path("a\x00b.toml"))


def test_the_variables_of_an_env_file_are_those_of_the_server_and_its_own_come_after(tmp_path: Path) -> None:
    (tmp_path / "keys.env").write_text("# c\nA=1\nB='two words'\nexport C=${A}\nNOTHING\n")
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"servers": {"x": {"command": "x", "envFile": "keys.env", "env": {"A": "own"}}}}))
    (server,) = read_file(file).servers
    shown = {name: value.get_secret_value() for name, value in server.env.items()}
    assert shown == {"A": "own", "B": "two words", "C": "$${A}"}  # it stands for itself


@pytest.mark.parametrize(
    ("given", "why"),
    [("none.env", "cannot be read: No such file"), (7, "must be the path of a file"), (".", "is not a file")],
)
def test_an_env_file_that_cannot_be_read_is_named(tmp_path: Path, given: object, why: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"x": {"command": "x", "envFile": given}}}))
    with pytest.raises(ConfigError, match=why) as caught:
        read_file(file)
    assert caught.value.key == f"{file}: mcpServers.x.envFile"


@pytest.mark.parametrize("text", ["${input:key}", "a/${workspaceFolder}/b", "${userHome}", "${command:x}"])
def test_what_only_an_editor_knows_names_the_command_that_resolves_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"servers": {"x": {"command": "x", "args": ["a", text]}}}))
    with pytest.raises(ConfigError, match="hubbub config import FILE") as caught:
        read_file(file)
    assert caught.value.key == f"{file}: servers.x.args.1"
