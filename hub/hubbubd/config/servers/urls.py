"""The urls of servers: which are valid, and how they are shown without their query, which may have secrets."""

import re
from typing import Final
from urllib.parse import urlsplit

_NO_USER: Final = "a url has no user and password; use headers"
_USER: Final = re.compile(r"https?://[^/?#]*@", re.IGNORECASE)

WITHHELD: Final = "**********"
"""The placeholder of a secret in the store."""


def withhold_query(url: str) -> str:
    """Return a url with WITHHELD in place of its query, if it has one."""
    head, mark, rest = url.partition("?")
    if not mark:
        return url
    _, fragment_mark, fragment = rest.partition("#")
    return f"{head}?{WITHHELD}{fragment_mark}{fragment}"


def check_url(url: str, *, resolved: bool) -> None:
    """Raise ValueError for an invalid URL.

    Without `resolved`, only the beginning of a URL with references is checked; with it, the whole URL.
    """
    if not url.lower().startswith(("http://", "https://", *(() if resolved else ("${",)))):
        raise ValueError("a url starts with http:// or https://")
    if "${" in url and not resolved:
        if _USER.match(url):
            raise ValueError(_NO_USER)
        return
    import httpx2  # lazy: few need it in their first second, and it takes a tenth of the start

    try:
        parsed = httpx2.URL(url)
        parts = urlsplit(url)
        _ = parts.port
    except (httpx2.InvalidURL, ValueError, UnicodeError) as exc:
        raise ValueError(f"not a url: {exc}") from None
    if parsed.userinfo or "@" in parts.netloc:
        raise ValueError(_NO_USER)
    if not parsed.host:
        raise ValueError("a url names a host")
    if "\\" in parts.netloc or parts.hostname is None:
        raise ValueError("a url names one host")
