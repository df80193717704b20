"""What macOS needs and Linux does not, by the calls that are made."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from hubbubd.store.sqlite import file

from . import macos

F_FULLFSYNC = 51
"""Of macOS: sys/fcntl.h."""


class Calls:
    """Stands for fcntl(2) and fsync(2) of macOS, and keeps what was asked of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failure: int = 0) -> None:
        self.made: list[tuple[str, int]] = []
        self._failure = failure
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
        monkeypatch.setattr(fcntl, "fcntl", self._fcntl)
        monkeypatch.setattr(os, "fsync", lambda descriptor: self.made.append(("fsync", descriptor)))

    def _fcntl(self, descriptor: int, command: int) -> int:
        assert command == F_FULLFSYNC
        self.made.append(("full", descriptor))
        if self._failure:
            raise OSError(self._failure, os.strerror(self._failure))
        return 0


def test_a_file_is_synced_to_the_disk_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    macos.load("files").sync(7)
    assert calls.made == [("full", 7)]


@pytest.mark.parametrize("failure", [errno.ENOTSUP, errno.ENOTTY, errno.EINVAL])
def test_a_file_system_without_such_a_sync_gets_the_ordinary_one(failure: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, failure)
    macos.load("files").sync(7)
    assert calls.made == [("full", 7), ("fsync", 7)]


def test_a_sync_that_failed_is_not_taken_for_done(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        macos.load("files").sync(7)
    assert calls.made == [("full", 7)]


@pytest.mark.parametrize("setting", ["fullfsync", "checkpoint_fullfsync"])
def test_the_store_asks_for_syncs_to_the_disk_itself(setting: str, tmp_path: Path) -> None:
    with file.open_connection(str(tmp_path / "store.db")) as db:
        assert db.execute(f"PRAGMA {setting}").fetchone() == (1,)


def test_an_anonymous_file_has_no_name_once_it_has_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    descriptor = macos.load("files").make_anonymous_file("spec")
    try:
        assert list(tmp_path.iterdir()) == []
        os.write(descriptor, b"secret")
        assert os.pread(descriptor, 10, 0) == b"secret"
    finally:
        os.close(descriptor)


def test_room_that_is_not_there_is_not_reserved(tmp_path: Path) -> None:
    with (tmp_path / "room").open("wb") as room:
        macos.load("files").reserve(room.fileno(), 3_000_000)
    assert (tmp_path / "room").stat().st_size == 3_000_000
    with Path("/dev/full").open("wb") as full, pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        macos.load("files").reserve(full.fileno(), 1)


def test_servers_are_started_by_the_portable_reaper() -> None:
    processes: Any = macos.load("processes")
    *_, script, descriptor, packages = processes.make_reaper_command(7)
    assert (Path(script).name, descriptor) == ("portable_reaper.py", "7")
    assert (Path(packages) / "psutil").is_dir()
