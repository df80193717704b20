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
"""Seconds in which it has to be there."""

FRESH_S: Final = 60.0
"""Seconds for which it is kept, so that a change of its redirect URIs counts soon."""

MAX_KEPT: Final = 100
AT_A_TIME: Final = 4


class ClientDocuments:
    """The documents that were fetched a moment ago."""

    def __init__(self, rules: Callable[[], HostRules], now: Callable[[], float], get: Get | None = None) -> None:
        """`get` returns the body at an address; by default as `upstream.http.get_json_text`."""
        self._rules = rules
        self._now = now
        self._given = get
        self._kept: OrderedDict[str, tuple[float, object]] = OrderedDict()
        self._fetching = anyio.CapacityLimiter(AT_A_TIME)

    async def fetch(self, url: str) -> object:
        """Return the JSON at an https address, FRESH_S old at most. Raises LoginRefusal if it cannot be had."""
        kept = self._kept.get(url)
        if kept is not None and self._now() - kept[0] < FRESH_S:
            return kept[1]
        try:
            with anyio.fail_after(FETCH_S):
                async with self._fetching:
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
        self._kept[url] = self._now(), document
        self._kept.move_to_end(url)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return document

    async def _fetch_body(self, url: str) -> bytes:
        """Return the body at an address. Raises HubError, OSError, ValueError."""
        get = self._given or await to_thread.run_sync(_import_get)
        return await get(url, self._rules(), MAX_BYTES)


def _import_get() -> Get:
    """Import and return the HTTP client's function; meant for a thread, as it takes long and few hubs need it."""
    from hubbubd.upstream.http import get_json_text

    return get_json_text


def _unreadable_error(why: str) -> LoginRefusal:
    return LoginRefusal("invalid_client", f"the document that describes the program {why}")
