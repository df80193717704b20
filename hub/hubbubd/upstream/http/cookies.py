"""The cookies of one server, for a balancer that leads by them: in memory, and for the server's exact origin alone."""

import math
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from time import time
from typing import Final

from yarl import URL

from hubbubd import bounds

MAX_COOKIES: Final = 20
MAX_COOKIE_BYTES: Final = 4096


class ServerCookies:
    """What a server has set during one connection. Without `wanted` nothing is kept."""

    def __init__(self, home: URL, *, wanted: bool, now: Callable[[], float] = time) -> None:
        """`now` returns the time in seconds since the epoch."""
        self.ignored = False
        """Whether a cookie came that was not kept."""
        self._home = home.origin()
        self._is_enabled = wanted
        self._now = now
        self._cookies: dict[str, tuple[str, float]] = {}
        """By name: the value, and when it ends, in seconds since the epoch."""

    def store(self, url: URL, headers: Iterable[str]) -> None:
        """Store the cookies of `Set-Cookie` headers of a response to a request for this URL.

        Unreadable ones, those of other origins, and those beyond MAX_COOKIES are skipped. A cookie that has ended
        already removes the stored one of its name. Where no cookies are wanted, `ignored` notes that some came.
        """
        for header in headers:
            if not self._is_enabled or url.origin() != self._home or len(header) > MAX_COOKIE_BYTES:
                self.ignored = self.ignored or not self._is_enabled
                continue
            try:
                parsed = SimpleCookie(header)
            except CookieError:
                continue
            for name, morsel in parsed.items():
                self._cookies.pop(name, None)
                ends_at = _end_time(morsel["max-age"], morsel["expires"], self._now())
                self._drop_expired()
                if ends_at > self._now() and len(self._cookies) < MAX_COOKIES:
                    self._cookies[name] = morsel.coded_value, ends_at

    def header(self, url: URL, configured: str | None) -> str | None:
        """Return the `Cookie` header of a request for this URL, after the `configured` one; None without any cookie."""
        self._drop_expired()
        matching = self._cookies.items() if url.origin() == self._home else ()
        pairs = [configured] if configured else []
        pairs += [f"{name}={value}" for name, (value, _) in matching]
        return "; ".join(pairs) or None

    def _drop_expired(self) -> None:
        """Forget the cookies that have ended."""
        now = self._now()
        self._cookies = {name: (value, ends_at) for name, (value, ends_at) in self._cookies.items() if ends_at > now}


def _end_time(max_age: str, expires: str, now: float) -> float:
    """Return when a cookie ends, in seconds since the epoch; infinity for the end of the connection.

    `Max-Age` comes before `Expires` (RFC 6265, section 5.3).
    """
    lasts_s = bounds.parse_whole(max_age)
    if lasts_s is None:
        lasts_s = bounds.parse_wait_s(expires, now)
    return math.inf if lasts_s is None else now + lasts_s
