"""A disk that misbehaves: SQLite's own input and output, with faults between it and the system.

Installing makes a VFS the default whose files are those of SQLite's own VFS, but that some of their methods come
through here (https://sqlite.org/c3ref/io_methods.html). Connections that are opened afterwards are subject to the
faults of `Disk`; without any they behave as ever.
"""

import _sqlite3
import ctypes
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

LIBRARY = ctypes.CDLL(_sqlite3.__file__)
"""The libsqlite3 that Python's own module is linked with."""

READ, WRITE, TRUNCATE, SYNC = "read", "write", "truncate", "sync"
CHANGES = (WRITE, TRUNCATE, SYNC)
MAIN, ROLLBACK, JOURNAL = 0x100, 0x800, 0x80000
"""Kinds of files, as SQLite opens them: the database, what undoes a transaction in it, the write-ahead log."""

ANY = MAIN | ROLLBACK | JOURNAL


class Methods(ctypes.Structure):
    """`sqlite3_io_methods`: those that matter here by name, the others carried along as they are."""


Close = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
Transfer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
Truncate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
Sync = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
Open = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int)
)

Methods._fields_ = [
    ("version", ctypes.c_int),
    ("close", Close),
    ("read", Transfer),
    ("write", Transfer),
    ("truncate", Truncate),
    ("sync", Sync),
    ("others", ctypes.c_void_p * 13),
]


class Vfs(ctypes.Structure):
    """`sqlite3_vfs`."""

    _fields_ = [
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("max_path", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("app_data", ctypes.c_void_p),
        ("open", Open),
        ("others", ctypes.c_void_p * 14),
    ]


class File(ctypes.Structure):
    """`sqlite3_file`: how every file of any VFS begins."""

    _fields_ = [("methods", ctypes.POINTER(Methods))]


LIBRARY.sqlite3_vfs_find.restype = ctypes.POINTER(Vfs)
LIBRARY.sqlite3_vfs_find.argtypes = [ctypes.c_char_p]
LIBRARY.sqlite3_vfs_register.argtypes = [ctypes.POINTER(Vfs), ctypes.c_int]
LIBRARY.sqlite3_vfs_unregister.argtypes = [ctypes.POINTER(Vfs)]


@dataclass
class Fault:
    """What happens to an operation: it takes longer, does half of it, or fails with a code of SQLite's.

    `kind` is that of the file; empty, the operation is any that changes one. Without a `code` it succeeds in the end.
    It spares the first `after`, then strikes so many `times`, or always.
    """

    operation: str
    code: int = 0
    delay_s: float = 0
    half: bool = False
    kind: int = ANY
    after: int = 0
    times: int | None = None

    def strikes(self, operation: str, kind: int) -> bool:
        """Whether this operation meets it; counts."""
        if (
            operation not in ([self.operation] if self.operation else CHANGES)
            or not self.kind & kind
            or self.times == 0
        ):
            return False
        if self.after:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


FULL = Fault(WRITE, sqlite3.SQLITE_FULL)
SHORT = Fault(WRITE, sqlite3.SQLITE_FULL, half=True)
BROKEN_WRITE = Fault(WRITE, sqlite3.SQLITE_IOERR_WRITE)
BROKEN_READ = Fault(READ, sqlite3.SQLITE_IOERR_READ)
BROKEN_SYNC = Fault(SYNC, sqlite3.SQLITE_IOERR_FSYNC)


class Disk:
    """The faults there are now, and what was done so far: operations with the kinds of their files."""

    def __init__(self, faults: Callable[[], Sequence[Fault]] | None = None) -> None:
        self.faults: Sequence[Fault] = []
        self.current = faults or (lambda: self.faults)
        self.done: list[tuple[str, int]] = []
        self._kinds: dict[int, int] = {}
        self._methods: dict[int, tuple[Methods, Methods]] = {}
        self._inner = LIBRARY.sqlite3_vfs_find(None)
        self._vfs = Vfs.from_buffer_copy(self._inner.contents)
        self._vfs.name = b"faulty"
        self._vfs.open = self._open = Open(self._opened)

    def install(self) -> None:
        """Makes it the disk of all connections that are opened from now on; it must outlive them."""
        LIBRARY.sqlite3_vfs_register(ctypes.byref(self._vfs), 1)

    def uninstall(self) -> None:
        """Takes it away again."""
        LIBRARY.sqlite3_vfs_unregister(ctypes.byref(self._vfs))

    @contextmanager
    def failing(self, *faults: Fault) -> Iterator[None]:
        """The disk has these faults for the time of the block."""
        self.faults = [replace(fault) for fault in faults]
        try:
            yield
        finally:
            self.faults = []

    def _opened(self, vfs: int, name: int, file: int, flags: int, out: Any) -> int:
        status = self._inner.contents.open(vfs, name, file, flags, out)
        opened = ctypes.cast(file, ctypes.POINTER(File)).contents
        if status == 0 and flags & ANY:
            self._kinds[file] = flags & ANY
            opened.methods = ctypes.pointer(self._faulty(opened.methods))
        return status

    def _faulty(self, own: Any) -> Methods:
        """The methods of a file of SQLite's, with faults. Made once, as they must live for as long as any file."""
        address = ctypes.addressof(own.contents)
        if address not in self._methods:
            inner = own.contents
            outer = Methods.from_buffer_copy(inner)
            outer.read = Transfer(self._transfer(READ, inner.read))
            outer.write = Transfer(self._transfer(WRITE, inner.write))
            outer.truncate = Truncate(lambda file, size: self._meet(TRUNCATE, file) or inner.truncate(file, size))
            outer.sync = Sync(lambda file, flags: self._meet(SYNC, file) or inner.sync(file, flags))
            self._methods[address] = inner, outer
        return self._methods[address][1]

    def _transfer(self, operation: str, inner: Any) -> Callable[[int, int, int, int], int]:
        def transfer(file: int, buffer: int, size: int, offset: int) -> int:
            code = self._meet(operation, file, lambda: inner(file, buffer, size // 2, offset))
            return code or inner(file, buffer, size, offset)

        return transfer

    def _meet(self, operation: str, file: int, do_half: Callable[[], int] = lambda: 0) -> int:
        kind = self._kinds[file]
        self.done.append((operation, kind))
        fault = next((fault for fault in self.current() if fault.strikes(operation, kind)), None)
        if fault is None:
            return 0
        time.sleep(fault.delay_s)
        if fault.half:
            do_half()
        return fault.code
