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
    """The cookies that a server set during one connection. Unless `is_enabled`, none is stored."""

    def __init__(self, server_url: URL, *, is_enabled: bool, now: Callable[[], float] = time) -> None:
        """`now` returns the time in seconds since the epoch."""
        self.has_ignored_cookie = False
        """Whether the server set a cookie while cookies were disabled."""
        self._origin = server_url.origin()
        self._is_enabled = is_enabled
        self._now = now
        self._cookies: dict[str, tuple[str, float]] = {}
        """By name: the value, and the time of its expiry in seconds since the epoch."""

    def store(self, url: URL, headers: Iterable[str]) -> None:
        """Store the cookies of `Set-Cookie` headers of a response to a request for this URL.

        Unreadable ones, those of other origins, and those beyond MAX_COOKIES are skipped. A cookie that has ended
        already removes the stored one of its name. Unless `is_enabled`, only `has_ignored_cookie` is set.
        """
        for header in headers:
            if not self._is_enabled or url.origin() != self._origin or len(header) > MAX_COOKIE_BYTES:
                self.has_ignored_cookie = self.has_ignored_cookie or not self._is_enabled
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

    def build_header(self, url: URL, configured: str | None) -> str | None:
        """Return the `Cookie` header of a request for this URL, after the `configured` one; None without any cookie."""
        self._drop_expired()
        matching = self._cookies.items() if url.origin() == self._origin else ()
        pairs = [configured] if configured else []
        pairs += [f"{name}={value}" for name, (value, _) in matching]
        return "; ".join(pairs) or None

    def _drop_expired(self) -> None:
        """Remove the expired cookies."""
        now = self._now()
        self._cookies = {name: (value, ends_at) for name, (value, ends_at) in self._cookies.items() if ends_at > now}


def _end_time(max_age: str, expires: str, now: float) -> float:
    """Return when a cookie expires, in seconds since the epoch; infinity if it lasts as long as the connection.

    `Max-Age` comes before `Expires` (RFC 6265, section 5.3).
    """
    lifetime_s = bounds.parse_whole(max_age)
    if lifetime_s is None:
        lifetime_s = bounds.parse_wait_s(expires, now)
    return math.inf if lifetime_s is None else now + lifetime_s
