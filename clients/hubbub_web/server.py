"""Runs `hubbub web`: a socket, on loopback unless there is TLS, the bridge behind it, and the link to open."""

import socket
import ssl
import webbrowser
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import anyio
import anyio.to_thread
import uvicorn

from hubbub_client.hub import Hub
from hubbub_client.numbers import LAST_PORT, whole_text
from hubbub_client.transport.discovery import is_loopback
from hubbub_frontend.links import Links
from hubbub_http import make_connection_class
from hubbub_web.access.entrance import Entrance
from hubbub_web.access.guard import Site
from hubbub_web.access.sessions import People, Sessions
from hubbub_web.app import Bridge
from hubbub_web.push import PushGateway
from hubbub_web.records.feed import Feed

STOP_S = 2


class _Server(uvicorn.Server):
    """A server whose endless responses end when it stops."""

    def __init__(self, config: uvicorn.Config, feed: Feed) -> None:
        super().__init__(config)
        self._feed = feed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the endless responses, and then the server."""
        self._feed.close()
        await super().shutdown(sockets)


def bind(listen: str, *, secure: bool = False) -> socket.socket:
    """Bind a socket to HOST:PORT; port 0 picks a free one.

    Raises ValueError for what is no such address, and off loopback unless the page has TLS (`secure`): everybody on the
    network could read and answer. Raises OSError if the socket cannot be bound.
    """
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or (number := whole_text(port)) is None or number > LAST_PORT:
        raise ValueError(f"{listen!r} is not HOST:PORT")
    if not secure and not is_loopback(host):
        raise ValueError(
            f"{host!r} is not on loopback, and without TLS others on the network could read and answer; "
            "give --tls-cert and --tls-key, or use a tunnel, for example ssh -L"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a body waits for the ACK of its headers
    try:
        bound.bind((host, number))
    except OSError:
        bound.close()
        raise
    return bound


@dataclass(frozen=True, slots=True)
class PageTls:
    """TLS of the page: the names of its certificate, and the context."""

    site: Site
    context: ssl.SSLContext

    @classmethod
    def load(cls, cert: Path, key: Path) -> "PageTls":
        """Load a certificate and its key, PEM. Raises ValueError for files that cannot be used."""
        from hubbub_frontend.certs import (
            certificate_hosts,  # imported here, since most pages are served on loopback and need none
        )

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(f"{cert} with {key} cannot be used: {error}") from None
        return cls(Site(certificate_hosts(cert), secure=True), context)


async def serve(
    hub: Hub,
    connect: Callable[[str | None], AbstractAsyncContextManager[Hub]],
    bound: socket.socket,
    announce: Callable[[str], None],
    say: Callable[[str], None],
    *,
    tls: PageTls | None = None,
    open_browser: bool,
    links: Links | None = None,
    pushing: PushGateway | None = None,
    command: str = "hubbub",
) -> None:
    """Serve until SIGINT or SIGTERM. `announce` gets the link, `say` other messages for the person.

    Browsers are also let in by `links`, and told by `pushing`. `command` is what people paste to reach the same hub.

    Raises HubbubError if the hub refuses the bridge.
    """
    host, port = bound.getsockname()[:2]
    feed, people = Feed(), People(connect, command)
    sessions = Sessions(people)
    site = tls.site if tls else Site()
    bridge = Bridge(feed, sessions, Entrance(sessions, people, links), port, site)
    bridge.push_gateway = pushing
    config = uvicorn.Config(
        bridge.application(),
        lifespan="off",
        ws="none",
        http=make_connection_class(open_to_all=True),  # the page itself needs no login
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_context_factory=(lambda _config, _default: tls.context) if tls else None,
        timeout_graceful_shutdown=STOP_S,
    )
    link_host = _link_host(host, site)
    url = (
        f"{site.scheme}://{f'[{link_host}]' if ':' in link_host else link_host}:{port}/#login={sessions.create_link()}"
    )
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(feed.follow, hub)
            if pushing is not None:
                group.start_soon(pushing.run, hub, sessions.subscribed, sessions.subscribers)
            bound.listen()
            announce(url)
            if open_browser:
                group.start_soon(_open_browser, url, say)
            await _Server(config, feed).serve([bound])
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):  # connections are closed also when this is cancelled
            await people.close()


def _link_host(host: str, site: Site) -> str:
    """Return a host for the link. For a wildcard address: a name of the certificate, or else of this machine."""
    if not ip_address(host).is_unspecified:
        return host
    names = (name for name in sorted(site.names) if not name.startswith("*") and not is_loopback(name))
    return next(names, socket.gethostname())


async def _open_browser(url: str, say: Callable[[str], None]) -> None:
    """Open a link in a browser, or say that no browser was found."""
    # Some browsers take their time to give back control, so the end of the program does not wait for the thread.
    if not await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True):
        say("no browser was found: open the link yourself")
