"""How the command line knows whether a hub runs for a data directory, and what it starts one with."""

import fcntl
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubbub_local import daemon
from hubbubd.store.engines import FILE


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A data directory whose lock this process holds, as a hub does."""
    lock = os.open(tmp_path / daemon.LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    yield tmp_path
    os.close(lock)


def client_file(directory: Path, address: object) -> None:
    (directory / "client.json").write_text(json.dumps({"address": address, "token": "x"}))


def test_the_lock_is_that_of_the_store() -> None:
    assert f"{FILE}.lock" == daemon.LOCK


def test_the_hub_is_the_process_that_holds_the_lock(held: Path) -> None:
    assert daemon.find_hub_pid(held) == os.getpid()
    assert not daemon.is_missing(held)


@pytest.mark.parametrize("content", ["", "not a number", "0x1", "-5", "OWN\n", "999999999\n", "9" * 20])
def test_a_lock_that_nobody_holds_is_no_hub_whatever_it_says(content: str, tmp_path: Path) -> None:
    (tmp_path / daemon.LOCK).write_text(content.replace("OWN", str(os.getpid())))
    assert daemon.find_hub_pid(tmp_path) is None
    assert daemon.is_missing(tmp_path)


def test_without_a_directory_there_is_no_hub(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "nowhere", tmp_path / "file"):
        assert daemon.find_hub_pid(directory) is None
        assert daemon.is_missing(directory)


def test_a_process_that_is_not_the_hub_any_more_gets_no_signal(tmp_path: Path) -> None:
    def refuse(_: int, __: object) -> None:
        raise AssertionError("it got the signal that was meant for the hub")

    (tmp_path / daemon.LOCK).write_text(f"{os.getpid()}\n")
    before = signal.signal(signal.SIGTERM, refuse)
    try:
        assert [*daemon.end_hub(tmp_path, os.getpid())] == []
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_hub_that_listens_is_not_missing(kind: str, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET if kind == "tcp" else socket.AF_UNIX) as listening:
        listening.bind(("127.0.0.1", 0) if kind == "tcp" else str(tmp_path / "sock"))
        listening.listen()
        client_file(tmp_path, f"127.0.0.1:{listening.getsockname()[1]}" if kind == "tcp" else f"unix:{tmp_path}/sock")
        assert not daemon.is_missing(tmp_path)
    assert daemon.is_missing(tmp_path)


@pytest.mark.parametrize(
    "address", [None, 7, "", "nothing", "127.0.0.1:x", "unix:", ["a"], {"a": 1}, "127.0.0.1:99999"]
)
def test_an_address_that_is_none_is_no_hub(address: object, tmp_path: Path) -> None:
    client_file(tmp_path, address)
    assert daemon.is_missing(tmp_path)


def test_the_data_directory_is_named_to_the_hub_only_where_somebody_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the hub's own configuration may name it."""
    monkeypatch.delenv("HUBBUB_DATA_DIR", raising=False)
    assert "--data-dir" not in daemon.make_command(None)
    assert daemon.make_command("here")[1:] == ["--data-dir", "here"]
    monkeypatch.setenv("HUBBUB_DATA_DIR", "there")
    assert daemon.make_command(None)[1:] == ["--data-dir", "there"]
    words = daemon.make_command("here", log=tmp_path, config=["a.toml", "b.json"], listen="127.0.0.1:0")
    files, place = ["--config", "a.toml", "--config", "b.json"], ["--data-dir", "here", "--listen", "127.0.0.1:0"]
    assert words[1:] == [*files, *place, "--log-file", str(tmp_path)]


def test_the_log_is_in_the_data_directory_unless_the_environment_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HUBBUBD_LOG_FILE", raising=False)
    assert daemon.find_log(str(tmp_path)) == tmp_path / "hubbubd.log"
    monkeypatch.setenv("HUBBUBD_LOG_FILE", "~/hub.log")
    assert daemon.find_log(str(tmp_path)) == Path.home() / "hub.log"


def test_a_daemon_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "find_program", lambda: None)
    with pytest.raises(daemon.NotStarted, match="hubbubd is not installed"):
        daemon.make_command(None)
