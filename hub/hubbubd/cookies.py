"""A jar that takes no cookies: nothing in MCP or OAuth needs them, and a server's are nobody else's business."""

from email.message import Message
from http.cookiejar import CookieJar
from typing import Protocol
from urllib.request import Request


class _Answer(Protocol):
    def info(self) -> Message:
        """The headers."""
        ...


class NoCookies(CookieJar):
    """For an HTTP client that asks servers of others. Cookies of the configuration are headers, and are sent."""

    def extract_cookies(self, response: _Answer, request: Request) -> None:
        """Takes none. They are not even read: the standard library computes with any number in them."""
