"""Opens transports over HTTP, with what they share: the connections, TLS, access. Imported with the first of them."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio
import httpx2
from anyio import to_thread
from yarl import URL

from hubbubd.config import ServerConfig
from hubbubd.config.policy.hosts import HostRules
from hubbubd.timing.slots import Slots
from hubbubd.upstream import faults
from hubbubd.upstream.deadlines import PausableDeadlines
from hubbubd.upstream.http.client import HttpClient
from hubbubd.upstream.http.connections import Connections
from hubbubd.upstream.http.oauth.access import Access
from hubbubd.upstream.http.sse import sse_transport
from hubbubd.upstream.http.streamable import http_transport
from hubbubd.upstream.messages.streams import LinkCallbacks, Transport, TransportStreams
from hubbubd.upstream.ports import Inbound, Permit, SecretsVault

OPENINGS: Final = 16
OPENING_S: Final = 0.25
"""Servers' own streams that are opened at once, and the seconds for which each counts: then it only waits."""


class HttpTransports:
    """The transports over HTTP of all servers."""

    def __init__(self, vault: SecretsVault, permit: Permit | None = None) -> None:
        self._vault = vault
        self._permit = permit
        self._connections = Connections()
        self._stream_slots = Slots(OPENINGS, OPENING_S)
        self._tls: ssl.SSLContext | None = None
        self._tls_lock = anyio.Lock()

    def transport(
        self, config: ServerConfig, inbound: Inbound, deadlines: PausableDeadlines, hosts: HostRules | None
    ) -> Transport:
        """Return the transport to `config.url`; `hosts` limits what is reached."""
        return partial(self._open, config, _make_access(config, inbound, self._vault, deadlines), hosts)

    @asynccontextmanager
    async def _open(
        self, config: ServerConfig, access: Access | None, hosts: HostRules | None, callbacks: LinkCallbacks
    ) -> AsyncGenerator[TransportStreams]:
        """Open a transport for the block, over the connections that servers with the same rules share."""
        assert config.url is not None
        url = URL(str(httpx2.URL(config.url)), encoded=True).with_fragment(None)
        tls = await self._tls_for(config)
        async with self._connections.use_session(hosts) as session:
            client = HttpClient(config, session, tls, hosts, access, permit=self._permit)
            limit = config.max_message_bytes
            if config.transport == "http":
                transport = http_transport(url, limit, client, callbacks, self._stream_slots)
            else:
                transport = sse_transport(url, limit, client, callbacks.mark_lost)
            async with transport as streams:
                yield streams

    async def _tls_for(self, config: ServerConfig) -> ssl.SSLContext:
        """Return a TLS context that verifies certificates by the system's authorities and those in `config.ca`.

        Raises UpstreamError (CONFIG_INVALID).
        """
        if config.ca is not None:
            try:
                return await to_thread.run_sync(partial(_make_tls_context, config.ca))
            except (OSError, ValueError) as exc:  # ssl.SSLError is an OSError
                raise faults.error("CONFIG_INVALID", f"ca: {config.ca} cannot be used: {exc}") from None
        async with self._tls_lock:
            # Kept: loading the certificates is nearly all that opening a connection costs.
            if self._tls is None:
                self._tls = await to_thread.run_sync(_make_tls_context, None)
        return self._tls


def _make_access(
    config: ServerConfig, inbound: Inbound, vault: SecretsVault, deadlines: PausableDeadlines
) -> Access | None:
    """Return the access of a connection; None where the operator configured a token."""
    has_token = config.oauth is None and any(name.lower() == "authorization" for name in config.headers)
    return None if has_token else Access(config, inbound, vault, deadlines)


def _make_tls_context(ca: str | None) -> ssl.SSLContext:
    """Return a TLS context for HTTP/1.1; `ca` is a file with further authorities."""
    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    if ca is not None:
        context.load_verify_locations(cafile=ca)
    return context
