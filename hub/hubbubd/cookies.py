"""A cookie jar that refuses all cookies: neither MCP nor OAuth needs any."""

from email.message import Message
from http.cookiejar import CookieJar
from typing import Protocol
from urllib.request import Request


class _HttpResponse(Protocol):
    def info(self) -> Message:
        """Return the headers."""
        ...


class NoCookies(CookieJar):
    """For HTTP clients to servers of others. A cookie in the configuration is a header, and is sent."""

    def extract_cookies(self, response: _HttpResponse, request: Request) -> None:
        """Ignore the cookies of a response unparsed: the standard library computes with unbounded numbers in them."""
