"""One-time links to the web page, and where the page is: small files below the hub's data directory.

A file of a link has the hash of its secret as its name. So those who may write into the data directory can make links,
and one who may only read it cannot. The page needs no endpoint for this, and links outlast its restarts.
"""

import contextlib
import hashlib
import json
import re
import secrets
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubbub_frontend.private_files import make_private_folder, write_private
from hubbub_shared.platform import files

MAX_LINKS = 500
"""The most links that are stored; older ones are deleted."""

_VIEW = re.compile(r"inbox|request/[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class PageLink:
    """The target of a link: a view of the page, and the id of a pending request, if the view shows one.

    `expires` is in seconds since 1970.
    """

    to: str
    request: str | None
    expires: float

    @property
    def is_expired(self) -> bool:
        """Return whether the link has expired."""
        return time.time() >= self.expires


class Links:
    """All one-time links below a data directory. Methods raise OSError."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = _folder(data_dir) / "links"

    def create(self, view: str, lifetime_s: float, request: str | None = None) -> str:
        """Make a link to a view of the page, and return the link's secret. Raises ValueError if there is no such view.

        With the id of a pending `request`, the link is good only while that request is open.
        """
        if not _VIEW.fullmatch(view):
            raise ValueError(f"{view!r} is no place of the page")
        make_private_folder(self._folder)
        self._prune()
        secret = secrets.token_urlsafe(32)
        content = json.dumps({"to": view, "request": request, "expires": time.time() + lifetime_s})
        write_private(self._file(secret), content.encode())
        return secret

    def find(self, secret: str) -> PageLink | None:
        """Return the link with this secret; None if it is unknown, or was used. It may have expired."""
        try:
            document: Any = json.loads(self._file(secret).read_text())
        except (FileNotFoundError, ValueError):
            return None
        match document:
            case {"to": str(to), "request": str() | None as request, "expires": float(expires)}:
                return PageLink(to, request, expires)
            case _:
                return None

    def use(self, secret: str) -> bool:
        """Use a link up. Return True if this call used it: of several calls at once, one succeeds."""
        try:
            self._file(secret).unlink()
        except FileNotFoundError:
            return False
        return True

    def _file(self, secret: str) -> Path:
        """Return the file of the link with this secret."""
        return self._folder / hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()

    def _prune(self) -> None:
        """Delete the oldest links, so that there is room for one more."""
        links: list[tuple[float, Path]] = []
        for file in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                links.append((file.stat().st_mtime, file))
        links.sort()
        for _, file in links[: max(0, len(links) - MAX_LINKS + 1)]:
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def announce_page(data_dir: Path, url: str) -> Generator[bool]:
    """Announce the address of the page while the block runs. Yield False if another page is announced already.

    Raises OSError.
    """
    folder = _folder(data_dir)
    make_private_folder(folder)
    with (folder / "page.lock").open("w") as page_lock, (folder / "page.alive").open("w") as alive_lock:
        if not files.lock(page_lock.fileno()):
            yield False
            return
        file = folder / "page.json"
        file.unlink(missing_ok=True)
        # `find_page_url` takes this second lock for a moment, not the first: so it never keeps a page from starting.
        files.lock(alive_lock.fileno(), wait=True)
        write_private(file, json.dumps({"url": url}).encode())
        try:
            yield True
        finally:
            file.unlink(missing_ok=True)


def find_page_url(data_dir: Path) -> str | None:
    """Return the address of the page that runs for this data directory; None if no page runs."""
    folder = _folder(data_dir)
    try:
        with (folder / "page.alive").open() as alive_lock:
            if not files.lock(alive_lock.fileno(), shared=True):  # a page that runs holds this lock
                announcement: Any = json.loads((folder / "page.json").read_text())
                return str(announcement["url"])
    except (OSError, ValueError, TypeError, KeyError):
        pass
    return None


def _folder(data_dir: Path) -> Path:
    """Return the folder, below a data directory, of the page's links and announcement."""
    return data_dir / "web"
