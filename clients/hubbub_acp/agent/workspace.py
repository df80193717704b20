"""Reads and writes files of the agent below one folder, and nowhere else.

A path is resolved first, links and all, and must be below the root then. What was resolved is opened folder by folder
from the root on, without following links: a link that is put there meanwhile leads nowhere.
"""

import io
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from hubbub_acp.faults import AgentFault
from hubbub_acp.plain_text import make_line

READ_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of a file that is read."""

WRITE_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of a file that is written."""

NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
DIRECTORY: Final = getattr(os, "O_DIRECTORY", 0)
NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0)


class Workspace:
    """The folder below which an agent may read and write. All methods block. They raise AgentFault."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def resolve(self, path: str) -> Path:
        """Return a path without links, which is below the root. Raises AgentFault: PATH_INVALID."""
        short_path = make_line(path, 500)
        if not Path(path).is_absolute():
            raise AgentFault("PATH_INVALID", f"{short_path!r} is no absolute path")
        try:
            resolved = Path(path).resolve()
        except (OSError, ValueError, RuntimeError) as exc:
            raise AgentFault("PATH_INVALID", f"{short_path!r} is no path: {exc}") from None
        if not resolved.is_relative_to(self.root):
            raise AgentFault("PATH_INVALID", f"{short_path!r} is not below {self.root}")
        return resolved

    def read(self, raw_path: str, line: int | None = None, limit: int | None = None) -> str:
        """Return the text of a file, from `line` on (counted from 1) and at most `limit` lines; None sets no bound."""
        path = self.resolve(raw_path)
        with self._open_parent(path) as folder, _translate_errors(path):
            # NONBLOCK: opening a named pipe would wait for a writer.
            descriptor = os.open(path.name, os.O_RDONLY | NOFOLLOW | NONBLOCK, dir_fd=folder)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise AgentFault("PATH_INVALID", f"{path} is no file")
                raw = file.read(READ_BYTES + 1)
        if len(raw) > READ_BYTES:
            raise AgentFault("FILE_TOO_LARGE", f"{path} has more than {READ_BYTES} bytes")
        text = raw.decode(errors="replace")
        if line is None and limit is None:
            return text
        first = max((line or 1) - 1, 0)
        lines = io.StringIO(text, newline="\n").readlines()  # other separators are characters of a line
        return "".join(lines[first:] if limit is None else lines[first : first + limit])

    def write(self, raw_path: str, content: str) -> Path:
        """Write a file whole or not at all; make the folders that it needs. Return its resolved path."""
        path = self.resolve(raw_path)
        raw = content.encode(errors="replace")
        if len(raw) > WRITE_BYTES:
            raise AgentFault("FILE_TOO_LARGE", f"{path} would have more than {WRITE_BYTES} bytes")
        with self._open_parent(path, make=True) as folder, _translate_errors(path):
            mode = 0o666  # of a new file, less the umask
            with suppress(FileNotFoundError):
                old = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISREG(old.st_mode):
                    raise AgentFault("PATH_INVALID", f"{path} is no file")
                mode = stat.S_IMODE(old.st_mode)
            draft_name = f".{path.name[:100]}.{secrets.token_hex(6)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW
            try:
                with os.fdopen(os.open(draft_name, flags, mode, dir_fd=folder), "wb") as file:
                    file.write(raw)
                    if mode != 0o666:
                        os.chmod(file.fileno(), mode)  # noqa: PTH101 - of what is open, whatever its name is by now
                os.replace(draft_name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(draft_name, dir_fd=folder)
                raise
        return path

    @contextmanager
    def _open_parent(self, path: Path, *, make: bool = False) -> Generator[int]:
        """Yield a descriptor of the folder that a resolved path is in, opened from the root on without following links.

        With `make`, folders that are missing are made.
        """
        if path == self.root:
            raise AgentFault("PATH_INVALID", f"{path} is no file")
        with _translate_errors(path):
            folder = os.open(self.root, os.O_RDONLY | DIRECTORY)
            try:
                for name in path.relative_to(self.root).parts[:-1]:
                    if make:
                        with suppress(FileExistsError):
                            os.mkdir(name, dir_fd=folder)
                    subfolder = os.open(name, os.O_RDONLY | DIRECTORY | NOFOLLOW, dir_fd=folder)
                    os.close(folder)
                    folder = subfolder
            except BaseException:
                os.close(folder)
                raise
        try:
            yield folder
        finally:
            os.close(folder)


@contextmanager
def _translate_errors(path: Path) -> Generator[None]:
    """Raise AgentFault (NOT_FOUND, PATH_INVALID) in place of the system's errors about a path."""
    try:
        yield
    except FileNotFoundError:
        raise AgentFault("NOT_FOUND", f"{path} does not exist") from None
    except (OSError, ValueError) as exc:
        problem = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise AgentFault("PATH_INVALID", f"{path}: {problem}") from None
