"""Fetches the documents by which programs describe themselves, by the hub's rules for hosts (OAuth client id metadata).

Only for people who have shown who they are: strangers cannot make the hub fetch anything.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio import to_thread

from hubbubd import payload
from hubbubd.config.policy.hosts import HostRules
from hubbubd.core.logins.refusals import LoginRefusal
from hubbubd.errors import HubError

Get = Callable[[str, HostRules, int], Awaitable[bytes]]

MAX_BYTES: Final = 16 * 1024
"""Bytes of a document."""

FETCH_S: Final = 5.0
"""Seconds within which a document must arrive."""

FRESH_S: Final = 60.0
"""Seconds for which a document is cached: short, so that a change of its redirect URIs counts soon."""

MAX_CACHED: Final = 100
MAX_FETCHES: Final = 4


class ClientDocuments:
    """Fetches documents, and caches them for FRESH_S."""

    def __init__(self, host_rules: Callable[[], HostRules], now: Callable[[], float], get: Get | None = None) -> None:
        """`host_rules` returns the current rules; `get` returns a body, by default as `upstream.http.get_json_text`."""
        self._host_rules = host_rules
        self._now = now
        self._custom_get = get
        self._cache: OrderedDict[str, tuple[float, object]] = OrderedDict()  # by URL: when, document
        self._fetch_limiter = anyio.CapacityLimiter(MAX_FETCHES)

    async def fetch(self, url: str) -> object:
        """Return the JSON at an https address, at most FRESH_S old. Raises LoginRefusal if it cannot be fetched."""
        cached = self._cache.get(url)
        if cached is not None and self._now() - cached[0] < FRESH_S:
            return cached[1]
        try:
            with anyio.fail_after(FETCH_S):
                async with self._fetch_limiter:
                    document = payload.loads(await self._fetch_body(url))
        except TimeoutError:
            raise _unreadable_error(f"did not come within {FETCH_S:g} s") from None
        except HubError as exc:
            raise _unreadable_error(f"may not be fetched: {exc.message}") from None
        except (OSError, ValueError) as exc:
            raise _unreadable_error(
                f"cannot be read: {str(exc)[:200] or type(exc).__name__}. Where the hub cannot reach it, "
                "`mcp_login_documents = false` has programs register instead"
            ) from None
        self._cache[url] = self._now(), document
        self._cache.move_to_end(url)
        if len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return document

    async def _fetch_body(self, url: str) -> bytes:
        """Return the body at an address. Raises HubError, OSError, ValueError."""
        get = self._custom_get or await to_thread.run_sync(_import_get)
        return await get(url, self._host_rules(), MAX_BYTES)


def _import_get() -> Get:
    """Import and return `get_json_text`; run it in a thread, as the import takes long and few hubs need it."""
    from hubbubd.upstream.http import get_json_text

    return get_json_text


def _unreadable_error(why: str) -> LoginRefusal:
    return LoginRefusal("invalid_client", f"the document that describes the program {why}")
