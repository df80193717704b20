"""Access to a server over HTTP. OAuth is imported and set up only when a server demands it: most never do."""

import gc
from functools import cache
from typing import TYPE_CHECKING, Final

from anyio import to_thread

from hubbubd.config import ServerConfig
from hubbubd.upstream.deadlines import PausableDeadlines
from hubbubd.upstream.http.client import Hop, HttpRequest, HttpResponse
from hubbubd.upstream.ports import Inbound, SecretsVault

if TYPE_CHECKING:
    from hubbubd.upstream.http.oauth.flow import OAuth

REFUSALS: Final = (401, 403)
"""Statuses of responses that a token may change."""


class Access:
    """The access of one connection, a `client.AccessLayer`."""

    def __init__(
        self, config: ServerConfig, inbound: Inbound, vault: SecretsVault, deadlines: PausableDeadlines
    ) -> None:
        self._config = config
        self._inbound = inbound
        self._vault = vault
        self._deadlines = deadlines
        self._oauth: OAuth | None = None
        self._needs_oauth = config.oauth is not None or vault.get(config.name) is not None

    async def send(self, request: HttpRequest, hop: Hop) -> HttpResponse:
        """Send a request, with OAuth if the server asks for it. Raises UpstreamError (AUTHENTICATION_FAILED)."""
        response: HttpResponse | None = None
        if self._oauth is None and not self._needs_oauth:
            response = await hop(request)
            if response.status not in REFUSALS:
                return response
        try:
            return await (self._oauth or await self._set_up_oauth()).send(request, hop, response)
        except BaseException:
            if response is not None:
                response.close()
            raise

    async def _set_up_oauth(self) -> "OAuth":
        """Return the OAuth of this connection; it is imported and made on the first call."""
        oauth_class = await to_thread.run_sync(_import_oauth)
        self._oauth = self._oauth or oauth_class(self._config, self._inbound, self._vault, self._deadlines)
        return self._oauth


@cache  # what is frozen is never collected as garbage, so only once
def _import_oauth() -> "type[OAuth]":
    """Import OAuth in a thread: with what signs and verifies it takes as long as all the rest over HTTP."""
    from hubbubd.upstream.http.oauth.flow import OAuth  # lazy: imports the SDK's clients

    gc.freeze()  # as at the start of the hub: what imports create is permanent
    return OAuth
