"""The servers that a person has in other programs: found at all nine hosts, translated, and no file stops another."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub_local.hosts import servers
from hubbub_local.hosts.imports import (
    MAX_SHOWN,
    Imported,
    describe_target,
    fill_in_values,
    give_unique_names,
    import_server,
    is_hub,
)
from hubbub_local.hosts.offers import (
    Offer,
    find_all_servers,
    find_servers_of_file,
    make_offers,
    make_text_environment,
    read_variables,
)
from hubbub_local.hosts.servers import FoundServer, ServerTable, Trouble
from hubbub_local.hosts.texts import TextEnvironment
from hubbub_local.platform_dirs import Machine

from .host_homes import FILES, SECRET, planted

ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join(9 * [f'*a{n - 1}'])}]\n" for n in range(1, 12)
)
ENVIRON = {"PORT": "80", "DOCS_HOME": "/d"}


def around(home: Path, **environ: str) -> TextEnvironment:
    return TextEnvironment(home=home, environ={**ENVIRON, **environ}, read=read_variables)


def at(home: Path) -> Machine:
    return Machine(platform="linux", home=home, environ={})


def listed(home: Path, folder: Path, configured: Mapping[str, Any] | None = None) -> tuple[list[Offer], list[Trouble]]:
    return make_offers(find_all_servers(at(home), folder), around(home), configured or {})


def entry(found: Any, references: Any = "none", folder: Path | None = None, **more: Any) -> Imported:
    """One entry of a host."""
    place = ServerTable(
        host="x", title="X", file=Path("/h/x.json"), section=("s",), folder=folder, references=references
    )
    return import_server(FoundServer(place=place, name="one", entry=found, **more), around(Path("/h")))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    planted(tmp_path)
    return tmp_path


OF_NEWER_HOSTS = {
    "python": {
        "command": "python",
        "args": ["-m", "${input:GEMINI_MODULE}"],
        "env": {"KEY": "${GEMINI_THING:-none}"},
        "cwd": str(Path.home() / "python"),
        "call_timeout_s": 15,
        "allow_tools": ["find"],
        "deny_tools": ["drop"],
    },
    "gemini-http": {"url": "https://gem.example/mcp", "headers": {"X-Price": "5$"}},
    "qwen-old": {"url": "https://q.example/events", "transport": "sse"},
    "local": {"command": "bun", "args": ["x", "thing"], "env": {"A": "${input:OPEN_THING}"}},
    "behind": {"url": "https://o.example/mcp", "headers": {"X-Key": f"${{file:{Path.home() / 'key.txt'}}}"}},
    "resting": {"command": "rest"},
    "pilot": {"command": "pilot", "args": ["a"], "call_timeout_s": 5},
    "picked": {"url": "https://p.example/mcp", "allow_tools": ["one"]},
}


def test_each_host_gives_what_it_has(home: Path) -> None:
    found, troubles = listed(home, home / "work")
    specs = {offer.server.name: offer.server.spec for offer in found}
    where = str(home / "work")
    assert specs == {
        "files": {"command": "npx", "args": ["-y", "@mcp/files", "/srv/ada"]},
        "github": {"command": "docker", "args": ["run", "-i", "gh"], "env": {"GITHUB_TOKEN": SECRET}},
        "literal": {"command": "echo", "args": ["$${HOME}"]},
        "tickets": {"url": "https://t.example/mcp", "headers": {"X-Team": "${TEAM:-all}"}},
        "shop": {"command": "shop", "args": ["${PORT}"], "cwd": "/srv/shop"},
        "search": {
            "command": "uvx",
            "args": ["search", "--region=${input:region}"],
            "env": {"SEARCH_WITH": "${input:key}"},
        },
        "open": None,
        "notes": {
            "url": "https://n.example/events",
            "transport": "sse",
            "headers": {"Authorization": "Bearer ${input:key}"},
        },
        "old": {"command": "old", "args": [f"{home}/x"]},
        "files-cursor": {"command": "npx", "args": ["other"]},
        "linear": {
            "url": "https://l.example/sse",
            "transport": "sse",
            "headers": {"Authorization": "Bearer ${input:LINEAR}"},
        },
        "dotenv": {"command": "d", "env": {"A": "own", "B": "two words", "D": "$A"}},
        "figma": {"url": "https://f.example/mcp", "deny_tools": ["delete[*]"]},
        "off": {"command": "off"},
        "zed-new": {"command": "zn", "args": ["a"], "env": {"PORT": "8080"}},
        "zed-old": {"command": "zo", "args": ["b"]},
        "by-extension": None,
        "docs": {"command": "docs", "env": {"DOCS_HOME": "${DOCS_HOME}"}, "allow_tools": ["find", "read[*]"]},
        "remote": {
            "url": "https://c.example/mcp",
            "headers": {
                "X-Client": "codex",
                "X-Org": "${input:ORG}",
                "Authorization": "Bearer ${input:REMOTE_TOKEN}",
            },
        },
        "developer": None,
        "memory": {
            "command": "memory",
            "args": ["--fast"],
            "env": {"LEVEL": "2", "MEMORY_KEY": "${input:MEMORY_KEY}"},
            "call_timeout_s": 300,
        },
        **OF_NEWER_HOSTS,
        "far": {"url": "https://g.example/mcp", "headers": {"Authorization": "Bearer ${input:FAR_KEY}"}},
        "here": {"command": "./server", "args": ["${ROOT:-.}"], "cwd": where},
        "space": {"command": "s", "args": [f"{where}/a"], "cwd": where},
    }
    assert troubles == []


def test_states_hosts_and_questions_are_told(home: Path) -> None:
    found = {offer.server.name: offer for offer in listed(home, home / "work")[0]}
    assert found["files"].hosts == "Claude Code, Claude Desktop"
    assert found["shop"].hosts == "Claude Code (/srv/shop)"
    assert {name: offer.state for name, offer in found.items() if offer.state != "new"} == {
        **dict.fromkeys(("off", "far", "resting"), "disabled"),
        **dict.fromkeys(("open", "by-extension", "developer"), "cannot"),
    }
    assert "depends on the folder" in found["open"].server.notes[0]
    assert "extension of the editor" in found["by-extension"].server.notes[0]
    region, key = found["search"].server.asks
    assert (region.secret, region.default, region.choices) == (False, "eu", ("eu", "us"))
    assert (key.secret, key.prompt) == (True, "Search key")
    assert found["linear"].server.asks[0].secret  # it goes into Authorization
    assert "reads the variable PORT of the hub's environment" in found["shop"].server.notes
    assert str(home / "secrets.env") in found["dotenv"].server.notes[0]


def test_no_file_of_a_host_is_changed(home: Path) -> None:
    before = {name: (home / name).stat().st_mtime_ns for name in FILES}
    listed(home, home / "work")
    assert {name: (home / name).stat().st_mtime_ns for name in FILES} == before


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        (".cursor/mcp.json", '{\n "mcpServers": {\n', "line 3, column 1: it is not JSON"),
        (".cursor/mcp.json", b'{"mcpServers":\n"\xff"}', "line 2: it is not text in UTF-8"),
        (".cursor/mcp.json", "[" * 200_000, "it nests too deep"),
        (".cursor/mcp.json", '{"n": ' + "9" * 5000 + "}", "it is not JSON: Exceeds the limit"),
        (".cursor/mcp.json", "[1, 2]", "it is no object"),
        (".cursor/mcp.json", '{"mcpServers": ["a"]}', "`mcpServers` is no table of servers"),
        (".cursor/mcp.json", '{"mcpServers": {"a": "npx"}}', "`mcpServers.a` is no server"),
        (".cursor/mcp.json", "{" + " " * 300_000 + "// late", "with more than comments, it may have 16 KiB at most"),
        (".config/goose/config.yaml", ALIASES, "those that aliases repeat included"),
        (".config/goose/config.yaml", "extensions: &a [*a]\n", "those that aliases repeat included"),
        (".codex/config.toml", "a = 1\nb = = 2\n", "it is not TOML: Invalid value (at line 2"),
        (".config/goose/config.yaml", "a: b\n  c: d: e\n", "line 2: it is not YAML"),
        (".config/goose/config.yaml", "a: !!python/object:os.system x\n", "it is not YAML"),
        (".config/goose/config.yaml", "extensions: {a: 2024-99-99}\n", "it is not YAML"),
    ],
)
def test_a_broken_file_is_named_with_line_and_reason_and_hides_nothing(
    home: Path, name: str, content: Any, why: str
) -> None:
    (home / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    found, troubles = listed(home, home / "work")
    assert [(str(each.place.file), why in each.why) for each in troubles] == [(str(home / name), True)], troubles
    assert {"github", "figma", "zed-new"} < {offer.server.name for offer in found}


def test_a_file_that_cannot_be_opened_or_is_none_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".cursor/mcp.json").unlink()
    os.mkfifo(home / ".cursor/mcp.json")
    assert [each.why for each in listed(home, home / "work")[1]] == ["it is no file"]
    (home / ".cursor/mcp.json").unlink()
    (home / ".cursor/mcp.json").mkdir()
    assert [each.why for each in listed(home, home / "work")[1]] == ["it is no file"]
    (home / ".cursor/mcp.json").rmdir()
    (home / ".cursor/mcp.json").symlink_to(home / ".cursor/mcp.json")  # to itself
    assert [each.why[:17] for each in listed(home, home / "work")[1]] in ([], ["it cannot be read"])
    monkeypatch.setattr(servers, "MAX_BYTES", 10)
    assert "MiB" in listed(home, home / "work")[1][0].why


def test_a_link_is_followed_as_people_keep_such_files_elsewhere(home: Path) -> None:
    file = home / ".cursor/mcp.json"
    file.rename(home / "kept.json")
    file.symlink_to(home / "kept.json")
    assert "linear" in {offer.server.name for offer in listed(home, home / "work")[0]}


def test_a_file_with_very_many_servers_is_cut_and_says_so(tmp_path: Path) -> None:
    many = {"mcpServers": {f"s{number}": {"command": f"c{number}"} for number in range(1005)}}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(many))
    found, troubles = make_offers(find_servers_of_file(at(tmp_path), tmp_path, file), around(tmp_path), {})
    assert (len(found), "1005 servers" in troubles[0].why) == (1000, True)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, "neither a command nor a url"),
        ({"type": "ws", "url": "wss://x"}, "no transport 'ws'"),
        ({"type": ["stdio"]}, "no transport ['stdio']"),
        ({"command": [["npx"]]}, "command is no text"),
        ({"command": "x", "args": "a b"}, "args is no list"),
        ({"command": "x", "args": [{}]}, "args is no text"),
        ({"command": "x", "env": ["A=1"]}, "env is no table"),
        ({"command": "x", "env": {"A": []}}, "env A is no text"),
        ({"command": "x", "args": ["a\0b"]}, "has a NUL"),
        ({"command": "x", "args": ["a\ud83d"]}, "half a character"),
        ({"command": "x", "env_keys": ["a}b"]}, "'a}b' is no name of a variable"),
        ({"command": "x" * 70_000}, "too long"),
        ({"command": "x", "args": ["a"] * 1001}, "too long"),
        ({"url": "ftp://x"}, "does not begin with http"),
        ({"url": "https://me:pw@x.example/mcp"}, "a user and a password"),
        ({"url": 7}, "does not begin with http"),
        ({"command": "x", "envFile": "/no/such.env"}, "is not there"),
    ],
)
def test_what_cannot_be_taken_over_says_why(found: Any, why: str) -> None:
    taken = entry(found)
    assert taken.spec is None
    assert why in taken.notes[0]


@pytest.mark.parametrize("text", ["${command:pick}", "${config:x.y}", "${input:unknown}", "${}", "${workspaceFolder}"])
def test_what_only_an_editor_knows_is_not_guessed(text: str) -> None:
    taken = entry({"command": "x", "args": [text]}, "editor")
    assert taken.spec is None
    assert text in taken.notes[0]


def test_keys_that_mean_something_else_are_named(home: Path) -> None:
    taken = entry({"command": "x", "sandbox": True, "autoApprove": ["a"], "auth": {}})
    assert taken.notes == ("'auth' is not taken over", "'sandbox' is not taken over")


def test_names_that_are_no_texts_are_named_too(home: Path) -> None:
    (home / ".config/goose/config.yaml").write_text("extensions: {1: {cmd: x, type: stdio, 2: a, other: b}}\n")
    found = {offer.server.name: offer.server for offer in listed(home, home / "work")[0]}
    assert found["1"].notes == ("'2' is not taken over", "'other' is not taken over")


def test_what_is_said_of_a_server_is_bounded_whatever_it_has() -> None:
    taken = entry({"command": "x", **{f"{number}" * 1000: 1 for number in range(30)}})
    assert (len(taken.notes), max(map(len, taken.notes))) == (20, 300)
    assert len(entry({"type": "y" * 10_000}).notes[0]) == 300


def test_in_the_home_the_files_of_the_person_are_not_those_of_the_folder_as_well(home: Path) -> None:
    everything = [each for each in find_all_servers(at(home), home) if isinstance(each, FoundServer)]
    files = [each.place.file for each in everything if each.name in ("linear", "docs")]
    assert files == [home / ".cursor/mcp.json", home / ".codex/config.toml"]


def test_a_file_that_is_named_is_read_as_that_of_its_host(home: Path) -> None:
    for name in (".claude.json", ".codex/config.toml", ".config/Claude/claude_desktop_config.json"):
        own = [each for each in find_all_servers(at(home), home / "work") if each.place.file == home / name]
        assert own
        assert find_servers_of_file(at(home), home / "work", home / name) == own
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "./a"}}}))
    (found,) = make_offers(find_servers_of_file(at(home), home / "work", elsewhere / ".mcp.json"), around(home), {})[0]
    assert found.server.spec == {"command": "./a", "cwd": str(elsewhere)}


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({"timeout": 600_000}, {"call_timeout_s": 600}),
        ({"timeout": 1500}, {"call_timeout_s": 1.5}),
        ({"timeout": 0}, {}),
        ({"timeout": 1e300}, {}),
        ({"timeout": "9"}, {}),
        ({"timeout": True}, {}),
    ],
)
def test_the_time_that_a_host_gives_a_server_is_taken_over_within_bounds(given: Any, limits: Any) -> None:
    place = ServerTable(host="claude-code", title="X", file=Path("/h/x.json"), section=("s",))
    taken = import_server(FoundServer(place=place, name="one", entry={"command": "x", **given}), around(Path("/h")))
    assert taken.spec == {"command": "x", **limits}
    assert (len(taken.notes) == 1) is (not limits)


@pytest.mark.parametrize(("host", "bare"), [("copilot-cli", "${PORT}"), ("gemini-cli", "PORT")])
def test_a_value_of_env_that_names_a_variable_stands_for_it_where_the_host_says_so(host: str, bare: str) -> None:
    place = ServerTable(host=host, title="X", file=Path("/h/x.json"), section=("s",), references="dollar")
    written = {"command": "x", "args": ["PORT", "$PORT"], "env": {"A": "PORT", "B": "$PORT", "C": "OTHER"}}
    taken = import_server(FoundServer(place=place, name="one", entry=written), around(Path("/h")))
    assert taken.spec is not None
    assert taken.spec["args"] == ["PORT", "${PORT}"]
    assert taken.spec["env"] == {"A": bare, "B": "${PORT}", "C": "OTHER"}


def test_a_folder_is_taken_over_whole_and_one_that_depends_on_the_host_is_not() -> None:
    assert entry({"command": "x", "cwd": "../b"}, folder=Path("/h/p/.gemini")).spec == {"command": "x", "cwd": "/h/p/b"}
    alone = entry({"command": "x", "cwd": "b"})
    assert alone.spec is None
    assert "relative to the folder that the host is started in" in alone.notes[0]


def test_what_a_folder_brings_is_told_from_what_a_person_has(home: Path) -> None:
    found, _ = listed(home, home / "work")
    assert {offer.server.name for offer in found if not offer.server.found.place.of_person} == {"here", "space"}


def test_the_hub_itself_is_left_out_however_it_is_started() -> None:
    for found in (
        {"command": "C:\\bin\\hubbub.exe", "args": ["--data-dir", "x", "mcp"]},
        {"command": "uvx", "args": ["hubbub", "mcp"]},
        {"cmd": "/usr/hubbub", "args": ["mcp"], "type": "stdio"},
    ):
        assert is_hub(entry(found).found)
    assert not is_hub(entry({"command": "hubbub", "args": ["web"]}).found)
    assert not is_hub(entry({"command": ["hubbub"], "args": {"mcp": 1}}).found)


def test_texts_refer_to_the_machine_that_has_them() -> None:
    machine = Machine(platform="win32", home=Path("/h"), environ={"PORT": "80"})
    environment = make_text_environment(machine)
    assert (environment.home, environment.environ, environment.separator) == (Path("/h"), {"PORT": "80"}, "\\")


def test_answers_take_the_place_of_what_is_asked_for() -> None:
    key = {"key": {"id": "key", "type": "promptString"}}
    taken = entry({"command": "x", "args": ["--k=${input:key}", "$"]}, "editor", inputs=key)
    assert fill_in_values(taken, {}).asks
    done = fill_in_values(taken, {"key": "a$${b}"})
    assert (done.spec, done.asks) == ({"command": "x", "args": ["--k=a$${b}", "$"]}, ())


def test_names_are_made_fit_and_different() -> None:
    place = ServerTable(host="cursor", title="Cursor", file=Path("x.json"), section=())
    names = ["io.github/a b", "-", "é", "x", "x", "x", "y"]
    several = [
        import_server(FoundServer(place=place, name=name, entry={"command": "c"}), around(Path("/"))) for name in names
    ]
    apart = [each.name for each in give_unique_names(several, {"y": {}})]
    assert apart == ["io.github-a-b", "server", "server-cursor", "x", "x-cursor", "x-2", "y-cursor"]
    assert several[0].notes == ("there it is called 'io.github/a b'",)


def test_a_second_look_finds_nothing_new(home: Path) -> None:
    first = [offer.server for offer in listed(home, home / "work")[0] if offer.state in ("new", "disabled")]
    configured = {each.name: dict(each.spec or {}) for each in first}
    configured["github"]["env"] = {"GITHUB_TOKEN": "${keyring:hubbub/github/GITHUB_TOKEN}"}
    configured["search"] |= {"args": ["search", "--region=us"], "env": {"SEARCH_WITH": "typed"}}
    again = listed(home, home / "work", configured)[0]
    assert {offer.state for offer in again} == {"there", "cannot"}


def test_a_server_that_got_another_name_is_found_again_with_its_secret_in_the_keyring(home: Path) -> None:
    other = {"command": "npx", "args": ["other"], "env": {"API_KEY": "s3cretword"}}
    (home / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": {"files": other}}))
    configured = {"files-cursor": {**other, "env": {"API_KEY": "${keyring:hubbub/files-cursor/API_KEY}"}}}
    states = {offer.hosts: offer.state for offer in listed(home, home / "work", configured)[0]}
    assert states["Cursor"] == "there"


def test_a_server_that_is_switched_off_at_one_host_alone_is_new(home: Path) -> None:
    (home / ".claude.json").write_text(json.dumps({"mcpServers": {"off": {"command": "off"}}}))
    (home / ".config/Claude/claude_desktop_config.json").write_text(
        json.dumps({"mcpServers": {"off": {"command": "off", "disabled": True}}})
    )
    found = {offer.server.name: offer for offer in listed(home, home / "work")[0]}
    assert (found["off"].state, found["off"].hosts) == ("new", "Claude Code, Claude Desktop, Windsurf")


def test_a_server_that_was_changed_in_the_configuration_is_not_new(home: Path) -> None:
    configured = {"files": {"command": "npx", "args": ["-y", "@mcp/files@2"]}}
    found = {offer.hosts: offer for offer in listed(home, home / "work", configured)[0]}
    assert found["Claude Code, Claude Desktop"].state == "differs"
    assert found["Claude Code, Claude Desktop"].server.name == "files-claude-code"


def test_what_is_shown_of_a_server_has_no_secret_and_one_line() -> None:
    spec = {"command": "/usr/very/long/npx", "args": ["-y", "x", "--token", "abc12345", "--api-key=k1234567"]}
    assert describe_target(spec) == "/usr/very/long/npx -y x --token *** --api-key=***"
    assert describe_target({"url": "https://x.example/mcp?api_key=abcdefgh12"}) == "https://x.example/mcp?***"
    assert describe_target({"command": "./tools/npx", "args": ["y" * 100]}) == f"./tools/npx {'y' * 100}"
    assert describe_target({"command": "x" * MAX_SHOWN, "args": ["y"]}).endswith("… and 2 characters more")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["command", "cmd", "args", "env", "envs", "env_keys", "url", "uri", "type", "headers", "cwd", "envFile", "enabled"]
)


@given(st.dictionaries(KEYS | st.text(max_size=6), VALUES, max_size=6), st.sampled_from(["none", "shell", "editor"]))
def test_no_entry_whatever_it_has_is_more_than_not_taken(found: dict[str, Any], references: str) -> None:
    taken = entry(found, references)
    assert taken.spec is not None or taken.notes
    assert "" in (taken.transport, "") or describe_target(taken.spec or {})


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
def test_a_host_that_replaces_nothing_means_every_text_as_it_is(text: str) -> None:
    spec = entry({"command": "x", "args": [text]}).spec
    assert spec is not None
    assert [each.replace("$${", "${") for each in spec["args"]] == [text]


def test_a_long_file_with_comments_is_read_and_its_texts_stay_as_they_are() -> None:
    many = "".join(
        f'"s{n}": {{"url": "https://x/{n}//y", /* {n} */ "args": ["/* a */", ",]",],}},\n' for n in range(5000)
    )
    text = "// mine\n{" + many + '"last": {"command": "a\\"//b"} /* no end'
    with pytest.raises(servers.UnreadableFile):
        servers.parse_settings(text, ".json")
    root = servers.parse_settings(text.removesuffix("/* no end") + "}", ".json")
    assert len(root) == 5001
    assert root["s7"] == {"url": "https://x/7//y", "args": ["/* a */", ",]"]}
    assert root["last"] == {"command": 'a"//b'}
