"""The cookies of one server, for a balancer that leads by them: in memory, and for the server's exact origin alone."""

from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Final

from yarl import URL

MOST: Final = 20
LONGEST: Final = 4096
"""Cookies that are kept, and bytes of one."""


class ServerCookies:
    """What a server has set during one connection. Without `wanted` nothing is kept."""

    def __init__(self, home: URL, *, wanted: bool) -> None:
        self.ignored = False
        """Whether a cookie came that was not kept."""
        self._home = home.origin()
        self._wanted = wanted
        self._kept: dict[str, str] = {}

    def take(self, url: URL, headers: Iterable[str]) -> None:
        """Take the `Set-Cookie` headers of a response to a request for this URL. What cannot be read is left."""
        for header in headers:
            if not self._wanted or url.origin() != self._home or len(header) > LONGEST:
                self.ignored = self.ignored or not self._wanted
                continue
            try:
                parsed = SimpleCookie(header)
            except CookieError:
                continue
            for name, morsel in parsed.items():
                self._kept.pop(name, None)
                if morsel["max-age"] != "0" and len(self._kept) < MOST:
                    self._kept[name] = morsel.coded_value

    def header(self, url: URL, configured: str | None) -> str | None:
        """Return the `Cookie` header of a request for this URL; None without any cookie."""
        own = self._kept.items() if url.origin() == self._home else ()
        return "; ".join([*filter(None, [configured]), *(f"{name}={value}" for name, value in own)]) or None
