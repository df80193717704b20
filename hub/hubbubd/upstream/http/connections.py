"""The connections over HTTP of all servers, in one pool per policy, and the SSRF guard.

A name is resolved and checked in one step, and exactly these addresses are connected to: they are pinned against DNS
rebinding. Redirects and authorization servers that a server names pass here as well, for every request. The
policy is in `config/policy/hosts.py`. Servers with different policies never share a connection.
"""

import errno
import os
import select
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from weakref import WeakSet

import aiohttp
import anyio
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

from hubbub_shared.platform.sockets import count_acknowledged_bytes
from hubbubd.config.policy.hosts import HostRules
from hubbubd.errors import PermissionDenied
from hubbubd.upstream import faults
from hubbubd.upstream.messages.retries import IDLE_S, SendProgress

HEADER_BYTES: Final = 32 * 1024
"""The longest header of a response, and the longest status line."""

MAX_HEADERS: Final = 128
"""The most headers of a response."""

READ_BYTES: Final = 64 * 1024
"""Bytes of a response that are read before the reader asks for them."""


class SendWatch:
    """Watches the connection over which the current task sends a request, in case that fails. It has to be closed."""

    def __init__(self, progress: SendProgress) -> None:
        self.progress = progress
        self._watch: AcknowledgmentWatch | None = None

    def watch_reused(self, descriptor: int) -> None:
        """Watch a connection that has been used before, in place of an earlier one; skipped if it is closed already."""
        self.close()
        with suppress(OSError):
            self._watch = AcknowledgmentWatch(descriptor)

    def note_failure(self, exc: Exception) -> None:
        """Note in `progress` whether it is certain that the server acknowledged no byte; `exc` broke the connection.

        Without a reset the count of acknowledged bytes is certain. After a reset it is not: the server may have read
        the request without acknowledging it.
        """
        is_reset = isinstance(exc, OSError) and exc.errno == errno.ECONNRESET
        self.progress.unacknowledged = not is_reset and self._watch is not None and not self._watch.has_acknowledged()

    def close(self) -> None:
        """Stop to watch the connection."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None


CURRENT_SEND: ContextVar[SendWatch | None] = ContextVar("hubbub_sent", default=None)
"""The watch of the request that the current task sends; None outside of requests."""


class Resolver(AbstractResolver):
    """Resolves names, and checks what they mean if there is a policy. Raises UpstreamError (HOST_NOT_ALLOWED)."""

    def __init__(self, hosts: HostRules | None) -> None:
        self._hosts = hosts

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host, if the policy allows them, in the order of the system. Raises OSError."""
        try:
            results = await anyio.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        except UnicodeError as exc:
            raise socket.gaierror(socket.EAI_NONAME, str(exc)) from exc
        addresses = list(dict.fromkeys((each[0], str(each[4][0])) for each in results))
        if self._hosts is not None:
            try:
                self._hosts.check(host, [ip_address(address) for _, address in addresses])
            except PermissionDenied as exc:
                raise faults.error("HOST_NOT_ALLOWED", exc.message, host=host) from None
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=flags)
            for kind, address in addresses
        ]

    async def close(self) -> None:
        """Do nothing: the resolver holds nothing."""


class PooledConnector(aiohttp.TCPConnector):
    """A pool of any number of connections: each parked call holds one.

    It hands out no idle connection that its server has closed, or on which unrequested data came: that would be read as
    the next response. It notes in `CURRENT_SEND` which connection it hands out.
    """

    def __init__(self, hosts: HostRules | None) -> None:
        # Without a cache of names each connection is checked by what its name means then.
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            resolver=Resolver(hosts), use_dns_cache=False, limit=0, keepalive_timeout=IDLE_S
        )
        self._handed_out: WeakSet[ResponseHandler] = WeakSet()

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout) -> Connection:
        """Return an idle connection that is still good, or a new one; called by aiohttp for each request.

        Tells the watch in CURRENT_SEND which of the two it is. Closes idle connections that are not good any more.
        """
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is None or protocol not in self._handed_out:
                break
            if not (protocol.should_close or _has_unread_input(connection)):
                if (watch := CURRENT_SEND.get()) is not None:
                    watch.watch_reused(_file_descriptor(connection))
                return connection
            connection.close()
        if protocol is not None:
            self._handed_out.add(protocol)
        if (watch := CURRENT_SEND.get()) is not None:
            watch.progress.is_new_connection = True
        return connection


def _file_descriptor(connection: Connection) -> int:
    """Return the file descriptor of a connection; negative when it is closed."""
    transport = connection.transport
    plain = transport.get_extra_info("socket") if transport is not None else None
    return -1 if plain is None else plain.fileno()


def _has_unread_input(connection: Connection) -> bool:
    """Return whether an idle connection has ended, or has unread data, which no request can have caused."""
    descriptor = _file_descriptor(connection)
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


class AcknowledgmentWatch:
    """Tells whether the peer acknowledged any byte that is sent over a connection from now on, also once it is closed.

    The kernel counts the bytes that were acknowledged. The count is lost when a transport closes its socket, so this
    holds a duplicate, which has to be closed. Where the kernel does not count, everything counts as acknowledged.
    """

    def __init__(self, descriptor: int) -> None:
        # Naming family and kind saves a system call to find them; which ones does not matter here.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, os.dup(descriptor))
        self._bytes_before = count_acknowledged_bytes(self._socket)

    def has_acknowledged(self) -> bool:
        """Return whether the other end may have acknowledged anything."""
        return self._bytes_before is None or count_acknowledged_bytes(self._socket) != self._bytes_before

    def close(self) -> None:
        """Close the duplicate of the socket."""
        self._socket.close()


class EmptyCookieJar(aiohttp.DummyCookieJar):
    """A cookie jar that stays empty: neither MCP nor OAuth needs any. `ServerCookies` has those that are wanted."""

    def update_cookies_from_headers(self, headers: Sequence[str], response_url: URL) -> None:
        """Ignore the headers, without parsing them."""


@dataclass(slots=True)
class _Pool:
    """The connections of one policy, and how many servers use them."""

    session: aiohttp.ClientSession
    users: int = 0


class Connections:
    """The pools of a hub. Each is opened with its first server and closed with its last one."""

    def __init__(self) -> None:
        self._pools: dict[HostRules | None, _Pool] = {}

    @asynccontextmanager
    async def use_session(self, hosts: HostRules | None) -> AsyncGenerator[aiohttp.ClientSession]:
        """Yield the aiohttp session of the servers under one policy, shared by all of them; None allows every host.

        It keeps no cookies, and neither follows redirects nor decodes bodies nor reads the environment.
        """
        pool = self._pools.get(hosts)
        if pool is None:
            pool = self._pools[hosts] = _Pool(_make_session(hosts))
        pool.users += 1
        try:
            yield pool.session
        finally:
            pool.users -= 1
            if not pool.users:
                del self._pools[hosts]
                await pool.session.close()


def _make_session(hosts: HostRules | None) -> aiohttp.ClientSession:
    """Return a session that connects only to what the rules allow, with bounds on what it reads."""
    return aiohttp.ClientSession(
        connector=PooledConnector(hosts),
        cookie_jar=EmptyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        trust_env=False,
        read_bufsize=READ_BYTES,
        max_line_size=HEADER_BYTES,
        max_field_size=HEADER_BYTES,
        max_headers=MAX_HEADERS,
    )
