"""The cookies of one server, for a balancer that leads by them: in memory, and for the server's exact origin alone."""

import math
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from time import time
from typing import Final

from yarl import URL

from hubbubd import bounds

MOST: Final = 20
LONGEST: Final = 4096
"""Cookies that are kept, and bytes of one."""


class ServerCookies:
    """What a server has set during one connection. Without `wanted` nothing is kept."""

    def __init__(self, home: URL, *, wanted: bool, now: Callable[[], float] = time) -> None:
        """`now` returns the time in seconds since the epoch."""
        self.ignored = False
        """Whether a cookie came that was not kept."""
        self._home = home.origin()
        self._wanted = wanted
        self._now = now
        self._kept: dict[str, tuple[str, float]] = {}
        """By name: the value, and when it ends, in seconds since the epoch."""

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
                ends_at = _end(morsel["max-age"], morsel["expires"], self._now())
                self._drop_ended()
                if ends_at > self._now() and len(self._kept) < MOST:
                    self._kept[name] = morsel.coded_value, ends_at

    def header(self, url: URL, configured: str | None) -> str | None:
        """Return the `Cookie` header of a request for this URL; None without any cookie."""
        self._drop_ended()
        own = self._kept.items() if url.origin() == self._home else ()
        return "; ".join([*filter(None, [configured]), *(f"{name}={value}" for name, (value, _) in own)]) or None

    def _drop_ended(self) -> None:
        now = self._now()
        self._kept = {name: kept for name, kept in self._kept.items() if kept[1] > now}


def _end(max_age: str, expires: str, now: float) -> float:
    """Return when a cookie ends: by `Max-Age`, else by `Expires`, else with the connection (RFC 6265, section 5.3)."""
    lasts_s = bounds.whole_text(max_age)
    if lasts_s is None:
        lasts_s = bounds.wait_text(expires, now)
    return math.inf if lasts_s is None else now + lasts_s
