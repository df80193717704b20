"""Files: made durable, locked for other processes, and without a name."""

import errno
import os
import sys
import tempfile
from typing import Final

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

ZEROS_BYTES: Final = 1024 * 1024
"""Bytes of zeros that one write adds, where no system call reserves space."""


def sync(descriptor: int) -> None:
    """Write a file's content to the disk itself, durably, before this returns. Raises OSError.

    On macOS fsync(2) leaves the content in the cache of the drive, and F_FULLFSYNC does not (fcntl(2) there). File
    systems without F_FULLFSYNC, such as those of a network, get fsync(2).
    """
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
        except OSError as exc:
            if exc.errno not in (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL):
                raise
    os.fsync(descriptor)


def lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock a file for this process, until the descriptor is closed or the process ends.

    Return whether the file is locked now; False if another process has a lock. With `wait`, wait until the file is
    free. On Windows no lock is shared. Raises OSError.
    """
    if sys.platform == "win32":
        os.lseek(descriptor, 0, os.SEEK_SET)
        while True:
            try:
                msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
                break
            except OSError as exc:
                if not wait:
                    return False
                if exc.errno != errno.EDEADLK:  # which comes after ten attempts, one a second
                    raise
    else:
        operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(descriptor, operation if wait else operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def make_anonymous_file(name: str) -> int:
    """Return the descriptor of a new file that no other process can open; `name` only helps to find it in a list.

    On Linux the file is in memory. Elsewhere the file is in the directory of temporary files, and its name is gone
    before anything is written. Raises OSError.
    """
    if sys.platform == "linux":
        return os.memfd_create(name)
    descriptor, path = tempfile.mkstemp(prefix=f"hubbub-{name}-")
    os.unlink(path)  # noqa: PTH108 - no path object for a name that goes at once
    return descriptor


def reserve(descriptor: int, size: int) -> None:
    """Reserve `size` bytes of the disk for an empty file. Raises OSError if there is not so much space."""
    if sys.platform == "linux":
        os.posix_fallocate(descriptor, 0, size)
        return
    while size > 0:
        size -= os.write(descriptor, bytes(min(size, ZEROS_BYTES)))


def is_of_another_user(status: os.stat_result) -> bool:
    """Return whether a file belongs to another user than this process does; False on Windows."""
    return sys.platform != "win32" and status.st_uid != os.geteuid()


def is_system_read_only() -> bool:
    """Return whether nothing can be installed here, as in a container whose root is read-only."""
    return sys.platform != "win32" and bool(os.statvfs("/").f_flag & os.ST_RDONLY)
