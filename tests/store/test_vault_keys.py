"""Where the keys of a vault come from, and what is said when they cannot be used."""

import base64
import os
import secrets
import subprocess
from pathlib import Path

import pytest

from hubbubd.errors import ConfigError
from hubbubd.redaction import MARK, REDACTION
from hubbubd.store.vault.keys import MAX_KEYS, VARIABLE, VaultKeys


def made() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def kept(path: Path, content: str | bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
    return path


def test_the_first_of_a_file_seals_and_all_are_found(tmp_path: Path):
    lines = [made(), made()]
    file = kept(tmp_path / "vault.key", f"\n{lines[0]}\r\n\n{lines[1]}\n{lines[0]}\n")
    keys = VaultKeys.load(file, {})
    assert [key.secret for key in keys.keys] == [base64.b64decode(line) for line in lines]
    assert keys.first is keys.keys[0]
    assert all(keys.find(key.id) is key for key in keys.keys)
    assert keys.find("another") is None
    assert keys.origin == str(file)


def test_the_environment_has_them_too():
    assert len(VaultKeys.load(None, {VARIABLE: f"{made()}\n{made()}"}).keys) == 2


def test_a_file_that_only_its_owner_may_read_is_enough(tmp_path: Path):
    assert VaultKeys.load(kept(tmp_path / "vault.key", made(), 0o400), {}).first


def test_no_key_is_in_what_the_hub_prints(tmp_path: Path):
    line = made()
    keys = VaultKeys.load(kept(tmp_path / "vault.key", line), {})
    assert line not in repr(keys)
    assert REDACTION.redact_text(f"the key {line} was read") == f"the key {MARK} was read"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o660])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int):
    file = kept(tmp_path / "vault.key", made(), mode)
    with pytest.raises(ConfigError, match=rf"others may use .* \(mode {mode:04o}\); `chmod 600 {file}`"):
        VaultKeys.load(file, {})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "has no key; make one with"),
        ("\n \n", "has no key"),
        ("n0-k3y!", "key 1 of .* is not 32 bytes in base64; make one with"),
        (base64.b64encode(bytes(16)), "key 1 of .* is not 32 bytes"),
        (f"{made()}\n{made()[:-2]}", "key 2 of .* is not 32 bytes"),
        ("\n".join(made() for _ in range(MAX_KEYS + 1)), f"has more than {MAX_KEYS} keys"),
        ("A" * 5000, "is longer than 4096 bytes"),
        (b"\xff" * 32, "is not text; make one with"),
    ],
    ids=["empty", "blank", "no base64", "short", "one of two", "too many", "too long", "no text"],
)
def test_a_file_without_keys_is_refused_and_nothing_of_it_is_said(tmp_path: Path, content: str | bytes, words: str):
    with pytest.raises(ConfigError, match=words) as refused:
        VaultKeys.load(kept(tmp_path / "vault.key", content), {})
    assert refused.value.key == "fleet.vault_key_file"
    for word in (content if isinstance(content, str) else content.decode("latin-1")).split():
        assert word not in str(refused.value)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for each in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ConfigError, match="is not a file"):
            VaultKeys.load(each, {})
    with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
        VaultKeys.load(kept(tmp_path / "vault.key", made()) / "more", {})


def test_keys_in_two_places_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=f"there are keys in {VARIABLE}, too; take away"):
        VaultKeys.load(kept(tmp_path / "vault.key", made()), {VARIABLE: made()})


@pytest.mark.parametrize(
    ("given", "words"), [("no", "key 1 of HUBBUBD_VAULT_KEY is not"), ("A" * 5000, "is longer than"), ("", "no key")]
)
def test_a_variable_without_keys_is_refused(given: str, words: str):
    with pytest.raises(ConfigError, match=words) as refused:
        VaultKeys.load(None, {VARIABLE: given})
    assert refused.value.key == VARIABLE


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("where", [None, "a place/vault.key"], ids=["no key at all", "no such file"])
def test_the_command_that_is_named_makes_a_key_that_is_taken(tmp_path: Path, where: str | None):
    file = None if where is None else tmp_path / where
    with pytest.raises(ConfigError) as refused:
        VaultKeys.load(file, {})
    command = str(refused.value).split("`")[1]
    (tmp_path / "a place").mkdir()
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, capture_output=True)
    assert VaultKeys.load(file or tmp_path / "vault.key", {}).first
