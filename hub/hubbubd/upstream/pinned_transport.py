"""The SSRF guard: an HTTP transport that resolves a name, checks its addresses, and connects to exactly these.

Resolving and checking in one step pins the addresses against DNS rebinding. Redirects and authorization servers that a
server names pass here as well, whoever made the request. The policy is in `config/hosts.py`.
"""

import socket
import ssl
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any, cast

import anyio
import httpcore2
import httpx2

from hubbubd.config.hosts import Hosts
from hubbubd.errors import PermissionDenied
from hubbubd.upstream import faults


class CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Resolves, checks and connects, in this order. Raises UpstreamError (HOST_NOT_ALLOWED)."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._network = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """As `httpcore2.AsyncNetworkBackend`. Addresses are tried in the resolver's order and share the timeout."""
        try:
            with anyio.fail_after(timeout):
                found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"{host} was not resolved in time") from None
        except (OSError, UnicodeError) as exc:
            raise httpcore2.ConnectError(str(exc)) from exc
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        try:
            self._hosts.check(host, map(ip_address, addresses))
        except PermissionDenied as exc:
            raise faults.error("HOST_NOT_ALLOWED", exc.message, host=host) from None
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in addresses:
            share = None if timeout is None else timeout / len(addresses)
            try:
                return await self._network.connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as exc:
                failure = exc
        raise failure

    async def sleep(self, seconds: float) -> None:
        """As `httpcore2.AsyncNetworkBackend`."""
        await anyio.sleep(seconds)


class CheckedTransport(httpx2.AsyncHTTPTransport):
    """A confined client's transport. It ignores proxies of the environment, which would resolve names themselves."""

    def __init__(self, hosts: Hosts, tls: ssl.SSLContext, limits: httpx2.Limits) -> None:
        super().__init__(verify=tls, trust_env=False, limits=limits)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=CheckedBackend(hosts),
        )
