"""The hub in the settings of each host: all else in them stays, and what cannot be read is left alone."""

import base64
import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import jsonschema_rs
import pytest
import yaml

from hubbub_bridge import trial
from hubbub_cli.host_entry.check import print_trial
from hubbub_local.hosts.files import UnchangeableHostFile, change_file
from hubbub_local.hosts.kinds import HOSTS, BridgeCommand, HostProgram, Url
from hubbub_local.platform_dirs import Machine
from hubbub_shared.legible import is_clean

from .host_files_of import home, opens
from .host_shapes import SHAPES

__all__ = ["home"]

BRIDGE = BridgeCommand(command="C:/hub é/hubbub", args=("mcp", "--profile", 'a"b\\c'), env={"HUBBUB_TOKEN": "s"})
URL = Url(url="http://127.0.0.1:7881/mcp", token="hbt_x")
READ: dict[str, Any] = {".json": json.loads, ".toml": tomllib.loads, ".yaml": yaml.safe_load}

FILES = {
    ("claude-code", "linux"): ".claude.json",
    ("claude-desktop", "linux"): ".config/Claude/claude_desktop_config.json",
    ("claude-desktop", "darwin"): "Library/Application Support/Claude/claude_desktop_config.json",
    ("claude-desktop", "win32"): "AppData/Roaming/Claude/claude_desktop_config.json",
    ("vscode", "linux"): ".config/Code/User/mcp.json",
    ("vscode", "darwin"): "Library/Application Support/Code/User/mcp.json",
    ("cursor", "linux"): ".cursor/mcp.json",
    ("codex", "linux"): ".codex/config.toml",
    ("gemini-cli", "linux"): ".gemini/settings.json",
    ("qwen-code", "linux"): ".qwen/settings.json",
    ("opencode", "linux"): ".config/opencode/opencode.json",
    ("copilot-cli", "linux"): ".copilot/mcp-config.json",
    ("windsurf", "linux"): ".codeium/windsurf/mcp_config.json",
    ("zed", "linux"): ".config/zed/settings.json",
    ("zed", "darwin"): ".config/zed/settings.json",
    ("goose", "linux"): ".config/goose/config.yaml",
    ("goose", "darwin"): ".config/goose/config.yaml",
}

STARTED = {"command": BRIDGE.command, "args": list(BRIDGE.args), "env": {"HUBBUB_TOKEN": "s"}}
HEADERS = {"Authorization": "Bearer hbt_x"}
GOOSE = {"name": "hubbub", "description": "All MCP servers of the hub", "enabled": True, "timeout": 300}
ENTRIES: dict[str, tuple[str, Any, Any]] = {
    "claude-code": ("mcpServers", {"type": "stdio", **STARTED}, {"type": "http", "url": URL.url, "headers": HEADERS}),
    "claude-desktop": ("mcpServers", STARTED, None),
    "vscode": ("servers", {"type": "stdio", **STARTED}, {"type": "http", "url": URL.url, "headers": HEADERS}),
    "cursor": ("mcpServers", STARTED, {"url": URL.url, "headers": HEADERS}),
    "codex": (
        "mcp_servers",
        {**STARTED, "tool_timeout_sec": 300},
        {"url": URL.url, "http_headers": HEADERS, "tool_timeout_sec": 300},
    ),
    "gemini-cli": ("mcpServers", STARTED, {"httpUrl": URL.url, "headers": HEADERS}),
    "qwen-code": ("mcpServers", STARTED, {"httpUrl": URL.url, "headers": HEADERS}),
    "opencode": (
        "mcp",
        {
            "type": "local",
            "command": [BRIDGE.command, *BRIDGE.args],
            "environment": {"HUBBUB_TOKEN": "s"},
            "enabled": True,
        },
        {"type": "remote", "url": URL.url, "headers": HEADERS, "oauth": False, "enabled": True},
    ),
    "copilot-cli": (
        "mcpServers",
        {"type": "local", **STARTED, "tools": ["*"]},
        {"type": "http", "url": URL.url, "headers": HEADERS, "tools": ["*"]},
    ),
    "windsurf": ("mcpServers", STARTED, {"serverUrl": URL.url, "headers": HEADERS}),
    "zed": ("context_servers", STARTED, {"url": URL.url, "headers": HEADERS}),
    "goose": (
        "extensions",
        {**GOOSE, "type": "stdio", "cmd": BRIDGE.command, "args": list(BRIDGE.args), "envs": {"HUBBUB_TOKEN": "s"}},
        {**GOOSE, "type": "streamable_http", "uri": URL.url, "headers": HEADERS},
    ),
}

JSON = '{\n    "theme": "dark", "big": 123456789012345678901234567890,\n    "SECTION": {"other": {"command": "x"}}\n}\n'
TOML = (
    'model = "o"  # mine\n\n[SECTION.other]\ncommand = "x"\n\n[SECTION.hubbub]\nurl = "old"\n'
    "[SECTION.hubbub.http_headers]\na = 'b'\n\n[profiles.x]\nmodel = 'y'\n"
)
YAML = (
    "---\n# mine\nGOOSE_MODEL: x\nSECTION:\n    # the others\n"
    "    other:\n        enabled: true\n        args: [a, 'b: c']\n"
    "    hubbub:\n        cmd: old\n        envs:\n            A: b\n    last:\n        cmd: |\n          a: b\n"
    "\nkeyring: {a: 1}\n"
)
BEFORE = {".json": JSON, ".toml": TOML, ".yaml": YAML}


def test_there_is_an_expectation_for_each_host() -> None:
    assert {*ENTRIES} == {*HOSTS} == {host for host, _ in FILES}


@pytest.mark.parametrize(("host", "platform"), FILES)
def test_the_file_is_where_the_host_keeps_it(host: str, platform: str) -> None:
    at = Machine(platform=platform, home=Path("/h"), environ={})
    assert HOSTS[host].file(at) == Path("/h") / FILES[host, platform]


def test_hosts_that_can_be_told_where_are_followed() -> None:
    environ = {"CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/x", "XDG_CONFIG_HOME": "/g", "COPILOT_HOME": "/p"}
    at = Machine(platform="linux", home=Path("/h"), environ=environ)
    places = {name: str(host.file(at)) for name, host in HOSTS.items()}
    assert (places["claude-code"], places["codex"]) == ("/c/.claude.json", "/x/config.toml")
    assert (places["goose"], places["vscode"]) == ("/g/goose/config.yaml", "/g/Code/User/mcp.json")
    assert (places["opencode"], places["copilot-cli"]) == ("/g/opencode/opencode.json", "/p/mcp-config.json")


def test_the_file_that_opencode_makes_itself_is_the_one_that_is_changed(tmp_path: Path) -> None:
    made = tmp_path / ".config/opencode/opencode.jsonc"
    made.parent.mkdir(parents=True)
    made.write_text('{\n  "$schema": "https://opencode.ai/config.json" // its own\n}\n')
    host = HOSTS["opencode"]
    file = host.file(Machine(platform="linux", home=tmp_path, environ={}))
    assert file == made
    change_file(file, {(host.section,): {"hubbub": {"type": "local", "command": ["hubbub", "mcp"]}}})
    assert "// its own" in made.read_text()


def entries(host: HostProgram) -> list[tuple[Any, Any]]:
    """What is to be set, with what the host is to read; for the bridge, for the URL, and for a host that logs in."""
    _, started, url = ENTRIES[host.name]
    if host.http is None:
        return [(host.stdio(BRIDGE), started)]
    with_token = ("headers", "http_headers", "oauth")  # `oauth: false` says that no log-in is needed
    address = {name: value for name, value in url.items() if name not in with_token}
    return [(host.stdio(BRIDGE), started), (host.http(URL), url), (host.http(replace(URL, token=None)), address)]


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_an_entry_has_the_shape_that_its_host_documents(host: HostProgram) -> None:
    shape = jsonschema_rs.validator_for(SHAPES[host.name])
    for entry, _ in entries(host):
        shape.validate(entry)
        wrong = {**entry, "commando": "x"}
        assert not shape.is_valid(wrong)


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_a_file_that_is_not_there_is_made_for_its_owner_alone(host: HostProgram, tmp_path: Path) -> None:
    file = tmp_path / "new" / host.file(Machine(platform="linux", home=tmp_path, environ={})).name
    section = ENTRIES[host.name][0]
    for entry, wanted in entries(host):
        assert change_file(file, {(section,): {"hubbub": entry}})[0]
        assert READ[file.suffix](file.read_text()) == {section: {"hubbub": wanted}}
        assert file.stat().st_mode & 0o077 == 0
        assert change_file(file, {(section,): {"hubbub": entry}}) == (False, None)


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_what_else_a_file_says_stays_and_a_copy_of_it_is_kept(host: HostProgram, tmp_path: Path) -> None:
    real = tmp_path / host.file(Machine(platform="linux", home=tmp_path, environ={})).name
    section = ENTRIES[host.name][0]
    before = BEFORE[real.suffix].replace("SECTION", section)
    for number, (entry, wanted) in enumerate(entries(host)):
        real.write_text(before)
        real.chmod(0o640)
        link = tmp_path / f"link{number}{real.suffix}"
        link.symlink_to(real)
        changed, backup = change_file(link, {(section,): {"hubbub": entry}})
        assert changed
        assert backup is not None
        assert backup.read_text() == before
        expected = READ[real.suffix](before)
        expected[section]["hubbub"] = wanted
        assert READ[real.suffix](real.read_text()) == expected
        assert link.is_symlink()
        assert real.stat().st_mode & 0o777 == 0o640
        assert ("# mine" in before) == ("# mine" in real.read_text())


@pytest.mark.parametrize(
    "before", ["a: 1\n", "extensions:\nb: 2\n", "extensions: {} # none\n", "b: 2\nextensions:", ""]
)
def test_a_section_without_entries_gets_its_first(before: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(before)
    change_file(file, {("extensions",): {"hubbub": {"cmd": "x", "envs": {"a b": "c"}}}})
    wanted = (yaml.safe_load(before) or {}) | {"extensions": {"hubbub": {"cmd": "x", "envs": {"a b": "c"}}}}
    assert yaml.safe_load(file.read_text()) == wanted


UNREADABLE = [
    (".json", b"{"),
    (".json", b'{"section": {}, "section": {}}'),
    (".json", b"[]"),
    (".json", b'{"section": []}'),
    (".json", b"\xff"),
    (".json", b"[" * 100_000),
    (".toml", b"a ="),
    (".toml", b"section = {other = {}}"),
    (".toml", b"section = 1"),
    (".toml", b"[section]\nhubbub = {a = 1}"),
    (".toml", b'a = """\n[section.hubbub]\n"""\n'),
    (".yaml", b"{a: 1}"),
    (".yaml", b"section: {a: {}}\n"),
    (".yaml", b"section: &x\n  a: 1\n"),
    (".yaml", b"section:\n  a: 1\nsection:\n  b: 1\n"),
    (".yaml", b"section:\n  - a\n"),
    (".yaml", b"section:\n    a:\n      b: 1\n  c: 1\n"),
    (".yaml", b"a: 1\n---\nb: 2\n"),
    (".yaml", b"a:\t1\n"),
]


@pytest.mark.parametrize(("kind", "content"), UNREADABLE)
def test_a_file_that_cannot_be_changed_with_certainty_is_left_as_it_is(
    kind: str, content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / f"file{kind}"
    file.write_bytes(content)
    with pytest.raises(UnchangeableHostFile):
        change_file(file, {("section",): {"hubbub": {"command": "x"}}})
    assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


def test_a_text_that_looks_like_the_table_of_the_hub_is_not_cut(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    before = 'about = """\n[mcp_servers.hubbub]\nis how it looks\n[end]\n"""\n'
    file.write_text(before)
    with pytest.raises(UnchangeableHostFile, match="cannot be changed here"):
        change_file(file, {("mcp_servers",): {"hubbub": {"command": "x"}}})
    assert file.read_text() == before


def test_half_a_character_stays_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"history": ["cut \\ud83d"]}')
    assert change_file(file, {("mcpServers",): {"hubbub": {"command": "x"}}})[0]
    assert json.loads(file.read_text()) == {"history": ["cut \ud83d"], "mcpServers": {"hubbub": {"command": "x"}}}


def test_each_change_keeps_a_copy_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    for number in range(3):
        change_file(file, {("servers",): {"hubbub": {"command": str(number)}}})
    assert json.loads((tmp_path / "mcp.json.bak").read_text())["servers"]["hubbub"] == {"command": "0"}
    assert json.loads((tmp_path / "mcp.json.bak1").read_text())["servers"]["hubbub"] == {"command": "1"}


async def test_the_command_installs_a_bridge_that_finds_the_same_hub_without_a_shell(
    hub: Any, hubbub: Any, home: Path
) -> None:
    hub.streams["Serve"] = opens
    hub.also = {"secret"}
    ran = await hubbub("mcp", "install", "cursor", "--profile", "work", env={"HUBBUB_TOKEN": "secret"})
    file = home / ".cursor" / "mcp.json"
    done = {"host": "cursor", "file": str(file), "changed": True, "backup": None}
    assert ran.lines == [{**done, "direct": [], "taken_out": [], "switched_off": []}], ran.err
    entry = json.loads(file.read_text())["mcpServers"]["hubbub"]
    assert entry["args"] == ["--data-dir", str(hub.data_dir), "mcp", "--profile", "work"]
    assert Path(entry["command"]).is_file()
    assert entry["env"] == {"HUBBUB_TOKEN": "secret"}
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_file_that_gets_a_token_is_its_owner_s_alone_from_then_on(hub: Any, hubbub: Any, home: Path) -> None:
    hub.streams["Serve"] = opens
    hub.also = {"secret"}
    file = home / ".claude.json"
    for before in ("{}", None):  # the second time nothing else is to be changed
        if before is not None:
            file.write_text(before)
        file.chmod(0o644)
        ran = await hubbub("mcp", "install", "claude-code", env={"HUBBUB_TOKEN": "secret"})
        assert ran.status == 0, ran.err
        assert file.stat().st_mode & 0o777 == 0o600


async def test_no_token_is_made_for_a_file_that_cannot_be_changed(hub: Any, hubbub: Any, home: Path) -> None:
    (home / ".claude.json").write_text("{")
    ran = await hubbub("mcp", "install", "claude-code", "--http", "--url", "http://127.0.0.1:7/mcp")
    assert ran.status == 1
    assert "--print" in ran.error["message"]
    assert hub.seen == []


@pytest.mark.parametrize("host", HOSTS)
async def test_print_changes_nothing_and_shows_what_belongs_into_which_file(
    host: str, hub: Any, hubbub: Any, home: Path
) -> None:
    ran = await hubbub("mcp", "install", host, "--print")
    (shown,) = ran.lines
    section = ENTRIES[host][0]
    entry = READ[Path(shown["file"]).suffix](shown["snippet"])[section]["hubbub"]
    assert shown["file"] == str(home / FILES[host, "linux"])
    for link in shown["links"]:
        parts = urlsplit(link)
        config = parse_qs(parts.query).get("config")
        told = json.loads(base64.b64decode(config[0]) if config else unquote(parts.query))
        assert told.items() >= entry.items()
    assert list(home.iterdir()) == []
    assert hub.seen == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("emacs",), "HOST"),
        (("claude-desktop", "--http"), "--http"),
        (("cursor", "--http"), "--url"),
        (("claude-desktop", "--login", "--url", "http://x"), "--login"),
        (("cursor", "--login"), "mcp_listen"),
        (("cursor", "--login", "--http", "--url", "http://x"), "--login"),
        (("cursor", "--url", "http://x"), "--url"),
        (("cursor", "--replace", "--print"), "--replace"),
        (("cursor", "--profile", "a", "--server", "b"), "--server"),
    ],
)
async def test_wrong_usage_is_named(words: tuple[str, ...], named: str, hub: Any, hubbub: Any, home: Path) -> None:
    ran = await hubbub("mcp", "install", *words)
    assert ran.status == 2
    assert named in ran.error["message"]
    assert list(home.iterdir()) == []


async def test_a_host_that_logs_in_gets_the_address_alone_and_no_token_is_made(
    hub: Any, hubbub: Any, home: Path
) -> None:
    words = ("mcp", "install", "codex", "--login", "--url", "https://hub.example/mcp", "--server", "one")
    hub.streams["Serve"] = opens
    (shown,) = (await hubbub(*words, "--print")).lines
    assert shown["log_in"] == "`codex mcp login hubbub`"
    ran = await hubbub(*words, json=False)
    assert "codex mcp login hubbub" in ran.err
    file = home / ".codex/config.toml"
    entry = {"url": "https://hub.example/mcp/s/one", "tool_timeout_sec": 300}
    assert tomllib.loads(file.read_text()) == tomllib.loads(shown["snippet"]) == {"mcp_servers": {"hubbub": entry}}
    assert hub.requests("CreateToken") == []


def test_check_names_what_hosts_would_cut() -> None:
    tools = [
        {"name": "fine", "description": "x" * 4096},
        {"name": "with.dot", "description": "x" * 4097},
        {"name": "n" * 60},
        {"name": "m" * 120},
    ]
    said = trial.list_warnings("i" * 2049, tools)
    assert [line.partition(":")[0] for line in said] == [
        "instructions",
        "1 tools left out by Claude Code, with its prefix beyond 128",
        "2 tools too long for APIs of models, with the prefix beyond 64",
        "2 tools left out by Cursor, with the hub's name beyond 60",
        "1 tools with characters that APIs of models refuse",
        "1 tools whose description Claude Code cuts at 4096 characters",
    ]
    assert trial.list_warnings("", [{"name": "a"}] * 40) == []
    assert len(trial.list_warnings("", [{"name": "a"}] * 129)) == 2


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"properties": {"next": {"$ref": "#"}}}, True),
        ({"$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, True),
        ({"$defs": {"a": {"type": "string"}}, "items": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/none"}]}, False),
        ({"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(5000)}}, False),
        ({"$ref": 1}, False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_check_names_tools_whose_schema_refers_to_itself(schema: dict[str, Any], named: bool) -> None:
    for member in ("inputSchema", "outputSchema"):
        said = trial.list_warnings("", [{"name": "plain"}, {"name": "deep", member: schema}])
        assert [("recursive schema" in each, "deep" in each, "plain" in each) for each in said] == (
            [(True, True, False)] if named else []
        )


def test_what_a_server_says_of_itself_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    trick = "\x1b]0;EVIL\x07\x9b2J"
    print_trial(trial.Trial(revision="r", server=trick, counts={"tools": 1}, warnings=[trick]))
    print_trial(trial.Trial(revision="r", failure=trick))
    assert all(map(is_clean, capsys.readouterr().out.splitlines()))
