"""Entries of a host's file are set and taken out; comments, order and form of all else stay."""

import json
import string
import tomllib
from pathlib import Path
from typing import Any

import json5
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hubbub_local.hosts import jsonc
from hubbub_local.hosts.files import change_file


def change_entries(file: Path, section: str, entries: dict[str, Any], **how: bool) -> tuple[bool, Path | None]:
    return change_file(file, {(section,): entries}, **how)


ZED = """// Zed settings
{
  "theme": "One Dark", // dark
  "context_servers": {
    // mine
    "a": {"command": "a"}, /* b is off */
    "c": {"command": "c", "args": ["}", "//"]}, // trailing
  },
}
"""


def test_an_entry_is_set_beside_comments_and_a_comma_too_many(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(ZED)
    change_entries(file, "context_servers", {"hubbub": {"command": "h", "args": ["mcp"]}})
    after = file.read_text()
    assert json5.loads(after) == {
        "theme": "One Dark",
        "context_servers": {
            "a": {"command": "a"},
            "c": {"command": "c", "args": ["}", "//"]},
            "hubbub": {"command": "h", "args": ["mcp"]},
        },
    }
    lines = ZED.splitlines()
    assert [line for line in after.splitlines() if line in lines] == lines


def test_entries_are_taken_out_and_what_stands_beside_them_stays(tmp_path: Path) -> None:
    file = tmp_path / "opencode.jsonc"
    file.write_text(ZED)
    change_entries(file, "context_servers", {"c": None, "hubbub": {"command": "h"}, "nobody": None})
    assert [*json5.loads(file.read_text())["context_servers"]] == ["a", "hubbub"]
    change_entries(file, "context_servers", {"a": None})
    change_entries(file, "context_servers", {"hubbub": None})
    after = file.read_text()
    assert json5.loads(after) == {"theme": "One Dark", "context_servers": {}}
    assert '"theme": "One Dark", // dark' in after


@pytest.mark.parametrize(
    ("name", "before", "read"),
    [
        ("config.toml", '[s.a]\nx = 1\n[s."b.c"]\nx = 2\n[s."b.c".env]\nA = "1"\n[t]\ny = 3\n', tomllib.loads),
        ("config.yaml", "s:\n  a:\n    x: 1\n  b.c:\n    x: 2\n    env:\n      A: b\nt:\n  y: 3\n", yaml.safe_load),
    ],
)
def test_entries_are_taken_out_of_tables_too(name: str, before: str, read: Any, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(before)
    expected = read(before)
    del expected["s"]["b.c"]
    changed, backup = change_entries(file, "s", {"b.c": None})
    assert changed
    assert read(file.read_text()) == expected
    assert backup is not None
    assert backup.read_text() == before
    change_entries(file, "s", {"a": None})
    assert read(file.read_text()).get("s", {}) == {}
    assert read(file.read_text())["t"] == {"y": 3}


def test_a_file_with_a_token_is_for_its_owner_alone_and_so_is_its_copy(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text("{}")
    file.chmod(0o644)
    _, backup = change_entries(file, "servers", {"hubbub": {"url": "x"}}, private=True)
    assert backup is not None
    assert [each.stat().st_mode & 0o777 for each in (file, backup)] == [0o600, 0o600]
    file.chmod(0o644)
    assert change_entries(file, "servers", {"hubbub": {"url": "x"}}, private=True) == (False, None)
    assert file.stat().st_mode & 0o777 == 0o600


NAMES = st.text(string.ascii_letters + "é{}[],:/\\\"' ", min_size=1, max_size=6)
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | NAMES, lambda inner: st.lists(inner, max_size=3))
ENTRIES = st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=3), max_size=4)


@given(
    before=ENTRIES,
    others=st.dictionaries(NAMES, VALUES, max_size=3),
    changes=ENTRIES,
    out=st.sets(NAMES),
    data=st.data(),
)
def test_whatever_names_and_values_there_are_the_text_says_what_is_wanted(
    before: dict[str, Any], others: dict[str, Any], changes: dict[str, Any], out: set[str], data: st.DataObject
) -> None:
    root = {**others, "servers": before}
    text = json.dumps(root, indent=data.draw(st.sampled_from([None, 1, 4])))
    gone = {*out, *data.draw(st.sets(st.sampled_from([*before] or ["none"])))}
    entries = {**changes, **dict.fromkeys(gone)}
    kept = {name: entry for name, entry in before.items() if name not in entries}
    wanted = kept | {name: entry for name, entry in entries.items() if entry is not None}
    assert json.loads(jsonc.change_members(text, ("servers",), entries)) == {**root, "servers": wanted}
