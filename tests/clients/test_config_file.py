"""The configuration file: what is set is read back, and everything else is kept as it was written."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub_local import config_file, file_replacement
from hubbub_local.config_file import MASK, Unchangeable

TEXT = """# mine
[hub]   # settings
log_level = "info" # not debug
allow_hosts = [
  "public",  # all
]

[servers."a b"]
command = "x"   # one
env = { A = "1" }

# the end
"""

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
SPECS = st.fixed_dictionaries(
    {"command": WORDS},
    optional={"args": st.lists(WORDS, max_size=4), "env": st.dictionaries(WORDS, WORDS, max_size=3), "cwd": WORDS},
)
PLAIN = (
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | WORDS | st.lists(WORDS, max_size=3)
)


@given(NAMES, SPECS, WORDS)
def test_a_server_is_read_back_and_the_text_before_it_is_kept_byte_for_byte(
    name: str, spec: dict[str, Any], comment: str
) -> None:
    after = config_file.add_server(TEXT, name, spec, comment)
    assert after.startswith(TEXT)
    before = tomllib.loads(TEXT)
    assert tomllib.loads(after) == {**before, "servers": {**before["servers"], name: spec}}
    with pytest.raises(Unchangeable, match="already"):
        config_file.add_server(after, name, spec)


@given(
    st.sampled_from(["hub.listen", "hub.new", "servers.x.command", 'servers."a b".command', "mcp.profiles.p.tools"]),
    PLAIN,
)
def test_a_value_is_read_back_and_all_other_lines_are_kept(key: str, value: Any) -> None:
    after = config_file.set_value(TEXT, key, value)
    found: Any = tomllib.loads(after)
    for part in config_file.split_key(key):
        found = found[part]
    assert found == value
    kept = [line for line in TEXT.splitlines() if "command" not in line]
    lines = iter(after.splitlines())
    assert all(line in lines for line in kept)  # in their order


@given(PLAIN)
def test_what_a_value_replaces_takes_its_comment_along(value: Any) -> None:
    after = config_file.set_value(TEXT, "hub.log_level", value)
    assert [line for number, line in enumerate(after.split("\n")) if number != 2] == [
        line for number, line in enumerate(TEXT.split("\n")) if number != 2
    ]
    assert after.split("\n")[2].endswith("# not debug")
    assert tomllib.loads(after)["hub"]["log_level"] == value


@pytest.mark.parametrize(
    "text",
    [
        "servers = {}\n",
        'servers = { a = { command = "x" } }\n',
        '[servers]\na.command = "x"\n',
        '[servers.a]\ncommand = "x"',
        "",
    ],
)
def test_a_server_finds_its_place_however_servers_are_written(text: str) -> None:
    after = config_file.add_server(text, "b", {"command": "y", "env": {"K": "v"}})
    assert tomllib.loads(after)["servers"]["b"] == {"command": "y", "env": {"K": "v"}}
    assert tomllib.loads(after)["servers"].keys() >= tomllib.loads(text).get("servers", {}).keys()


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("true", True),
        ("1.5", 1.5),
        ('["a"]', ["a"]),
        ('"1"', "1"),
        ("debug", "debug"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("{ a = 1 }", {"a": 1}),
        ("1\nb = 2", "1\nb = 2"),
        ("${TOKEN}", "${TOKEN}"),
        ("", ""),
    ],
)
def test_a_value_is_toml_or_else_the_text_itself(typed: str, value: Any) -> None:
    assert config_file.parse_value(typed) == value


@pytest.mark.parametrize("key", ["", ".", "a..b", "a = 1\nb", "a b", "[a]", "a.", "# a"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(Unchangeable, match="is no key"):
        config_file.set_value("", key, 1)


def test_nothing_can_be_put_into_a_value() -> None:
    with pytest.raises(Unchangeable, match="log_level is a value"):
        config_file.set_value(TEXT, "hub.log_level.x", 1)
    with pytest.raises(Unchangeable, match="not TOML"):
        config_file.set_value("a = = 1", "b", 1)


def test_what_is_shown_has_no_secret() -> None:
    text = """
[servers.a]
command = "x"
args = ["--token", "s3cretword", "--ref=${T}", "plain"]
env = { LEVEL = "2", TOKEN = "s3cretword", REF = "${TOKEN}", MIXED = "Bearer s3cretword ${X}", TAIL = "${X}s3cretword" }
[store]
url = "postgresql://me:s3cretword@db/hub"
[notify]
urls = ["slack://s3cretword/B/C", "${NOTIFY_URL}"]
after_s = 5
[servers.b]
url = "https://x.example/mcp?api_key=s3cretword"
headers = { X = "s3cretword" }
oauth = { client_id = "me", client_secret = "s3cretword", private_key = "${file:/k}" }
"""
    shown = config_file.mask_secrets(text)
    assert "s3cretword" not in str(shown)
    assert shown["servers"]["a"]["args"] == ["--token", MASK, "--ref=${T}", "plain"]
    assert shown["servers"]["a"]["env"]["REF"] == "${TOKEN}"
    assert shown["notify"] == {"urls": [MASK, "${NOTIFY_URL}"], "after_s": 5}
    assert shown["store"] == {"url": MASK}
    assert shown["servers"]["b"]["oauth"] == {"client_id": "me", "client_secret": MASK, "private_key": "${file:/k}"}
    assert tomllib.loads(config_file.render_config(shown)) == shown
    queried = config_file.mask_secrets('[store]\nurl = "postgresql://db/hub?user=me&password=s3cretword"')
    assert queried == {"store": {"url": f"postgresql://db/hub?{MASK}"}}


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    assert config_file.read_config(tmp_path / "none.toml") == ""
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(Unchangeable, match="only a file of TOML"):
        config_file.read_config(tmp_path / "x.json")
    (tmp_path / "x.toml").write_bytes(b"\xff")
    with pytest.raises(Unchangeable, match="UTF-8"):
        config_file.read_config(tmp_path / "x.toml")


def test_a_file_is_replaced_whole_for_its_owner_alone_with_a_copy_of_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "hubbub.toml"
    assert file_replacement.replace_file(file, "a = 1\r\n", private=True) is None
    file.chmod(0o644)
    linked = tmp_path / "link.toml"
    linked.symlink_to(file)
    backup = file_replacement.replace_file(linked, "a = 2\n", private=True)
    assert (linked.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, "a = 2\n", 0o600)
    assert backup == file.with_name("hubbub.toml.bak")
    assert (backup.read_bytes(), backup.stat().st_mode & 0o777) == (b"a = 1\r\n", 0o600)
    assert sorted(each.name for each in file.parent.iterdir()) == ["hubbub.toml", "hubbub.toml.bak"]


def test_a_copy_of_a_file_can_be_read_by_its_owner_alone_while_it_is_made_and_is_not_left_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "hubbub.toml"
    file.write_text("a = 1\n")
    file.chmod(0o600)
    modes: list[int] = []

    def failing(_: Path, copy: Path) -> None:
        modes.append(copy.stat().st_mode & 0o777)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_replacement.shutil, "copystat", failing)
    with pytest.raises(OSError, match="No space"):
        file_replacement.replace_file(file, "a = 2\n", private=True)
    assert (modes, file.read_text(), [*tmp_path.iterdir()]) == ([0o600], "a = 1\n", [file])


def test_a_text_that_no_file_can_have_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "hubbub.toml"
    file.write_text("a = 1\n")
    with pytest.raises(UnicodeEncodeError):
        file_replacement.replace_file(file, "a = '\ud83d'")
    assert (file.read_text(), [*tmp_path.iterdir()]) == ("a = 1\n", [file])
