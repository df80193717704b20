"""How local clients find the hub and its token."""

import json
import resource
import stat
from pathlib import Path

import pytest

from hubbubd.rpc.auth import client_file


def test_clients_find_the_address_and_the_token_and_others_do_not(tmp_path: Path) -> None:
    path = client_file.write(tmp_path, address="127.0.0.1:7878", token="secret")
    assert json.loads(path.read_bytes()) == {"address": "127.0.0.1:7878", "token": "secret"}
    assert path == tmp_path / "client.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_the_token_is_kept_over_restarts(tmp_path: Path) -> None:
    token = client_file.load_or_make_token(tmp_path)
    client_file.write(tmp_path, address="127.0.0.1:1", token=token)
    assert client_file.load_or_make_token(tmp_path) == token


def test_every_hub_gets_a_token_of_its_own_that_nobody_can_guess(tmp_path: Path) -> None:
    tokens = {client_file.load_or_make_token(tmp_path) for _ in range(10)}
    assert len(tokens) == 10
    assert min(map(len, tokens)) >= 43


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"token": ""}', '{"token": 7}', "null"])
def test_a_file_without_a_token_gets_a_new_one(tmp_path: Path, content: str) -> None:
    path = tmp_path / "client.json"
    path.write_text(content)
    path.chmod(0o600)
    assert len(client_file.load_or_make_token(tmp_path)) >= 43


def test_a_token_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    path = client_file.write(tmp_path, address="127.0.0.1:1", token="known to all")
    path.chmod(0o644)
    assert client_file.load_or_make_token(tmp_path) != "known to all"
    client_file.write(tmp_path, address="127.0.0.1:1", token="new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_says_the_same_is_not_written_again(tmp_path: Path) -> None:
    path = client_file.write(tmp_path, address="127.0.0.1:1", token="secret")
    before = path.stat().st_ino
    client_file.write(tmp_path, address="127.0.0.1:1", token="secret")
    assert path.stat().st_ino == before
    client_file.write(tmp_path, address="127.0.0.1:2", token="secret")
    assert path.stat().st_ino != before


def test_on_a_full_disk_the_file_is_named_and_the_one_before_stays_alone(tmp_path: Path) -> None:
    path = client_file.write(tmp_path, address="127.0.0.1:1", token="secret")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))  # the kernel refuses to write more, as a full disk would
    try:
        with pytest.raises(OSError, match=r"client\.json cannot be written: File too large"):
            client_file.write(tmp_path, address="127.0.0.1:2", token="secret")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert json.loads(path.read_bytes())["address"] == "127.0.0.1:1"
    assert list(tmp_path.iterdir()) == [path]
