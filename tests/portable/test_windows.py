"""What clients need of Windows, by the calls that are made; and what a hub says there."""

import errno
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest

from hubbub_shared import platform
from hubbubd import __main__ as daemon

from . import macos


class Locks(ModuleType):
    """Stands for the module `msvcrt`: one byte of a file can be locked once."""

    LK_LOCK, LK_NBLCK = 1, 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.held: set[tuple[int, int]] = set()
        self.attempts = 0

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        status = os.fstat(descriptor)
        key = (status.st_dev, status.st_ino)
        assert count == 1
        self.attempts += 1
        if key in self.held:
            if mode == self.LK_NBLCK:
                raise PermissionError(errno.EACCES, "Permission denied")
            if self.attempts > 3:  # its holder has ended meanwhile
                self.held.clear()
            raise OSError(errno.EDEADLK, "deadlock avoided")  # as there, after ten seconds
        self.held.add(key)


def test_a_file_that_another_process_has_locked_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msvcrt", Locks())
    files = macos.load("files", "win32")
    with (tmp_path / "lock").open("w") as first, (tmp_path / "lock").open("w") as second:
        assert files.lock(first.fileno())
        assert not files.lock(second.fileno())


def test_a_lock_is_waited_for_until_it_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msvcrt", Locks())
    files = macos.load("files", "win32")
    with (tmp_path / "lock").open("w") as first, (tmp_path / "lock").open("w") as second:
        assert files.lock(first.fileno())
        assert files.lock(second.fileno(), wait=True)


def test_looking_for_a_process_sends_it_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "pid_exists", {7}.__contains__)
    monkeypatch.setattr(os, "kill", None)  # whose 0 is Ctrl-C there
    processes = macos.load("processes", "win32")
    assert [processes.is_running(pid) for pid in (7, 8)] == [True, False]


def test_nobody_owns_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msvcrt", Locks())
    assert not macos.load("files", "win32").is_of_another_user(SimpleNamespace(st_uid=0))


async def test_pipes_are_read_and_written_by_a_thread() -> None:
    pipes = macos.load("pipes", "win32")
    reading, writing = os.pipe()
    try:
        assert await pipes.write(writing, memoryview(b"a line\n")) == 7
        assert await pipes.read(reading, 100) == b"a line\n"
        os.close(writing)
        assert await pipes.read(reading, 100) == b""
    finally:
        os.close(reading)


def test_a_unix_socket_is_refused_with_what_to_do() -> None:
    with pytest.raises(OSError, match="reach the hub by HOST:PORT"):
        macos.load("sockets", "win32").try_unix_socket("hub.sock", 1)


def test_a_hub_says_that_it_runs_in_wsl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "NAME", "win32")
    with pytest.raises(SystemExit, match="install it in WSL"):
        daemon.main()
