"""Prometheus metrics over HTTP/1.1: GET /metrics, and nothing else.

Served on loopback, to requests whose `Host` is loopback: against DNS rebinding by pages in a browser.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio import CapacityLimiter, to_thread

from hubbub_http import make_connection_class
from hubbubd.config.sections.network import is_loopback
from hubbubd.rpc.listeners.http_server import serve_application

PATH = "/metrics"

MAX_SCRAPES = 8
"""The most concurrent requests; more are refused with 503."""

STALL_S = 10.0
"""Seconds a caller may take to read the response."""


@asynccontextmanager
async def serve_metrics(listen: str, exposition: Callable[[], tuple[str, bytes]]) -> AsyncGenerator[str, None]:
    """Serve what `exposition` returns, and yield its URL; `exposition` may block. Raises ConfigError, OSError."""
    app, connections = make_application(exposition), make_connection_class(open_to_all=True)
    async with serve_application(app, listen, connections=connections, grace_s=1) as url:
        yield f"{url}{PATH}"


def make_application(exposition: Callable[[], tuple[str, bytes]]) -> Any:
    """Return an ASGI application that serves the metrics, collected in a worker thread, for one request at a time."""
    one = CapacityLimiter(1)
    active = 0

    async def serve_counted(scope: Any, receive: Any, send: Any) -> None:
        """Serve a request, and count it as open meanwhile."""
        nonlocal active
        active += 1
        try:
            await send_metrics(scope, send)
        finally:
            active -= 1

    async def send_metrics(scope: Any, send: Any) -> None:
        """Send the metrics, or a status without a body; give up after STALL_S if the caller does not read."""
        status, about, body = 200, [], b""
        if active > MAX_SCRAPES:
            status = 503
        elif not _is_host_loopback(scope["headers"]):
            status = 421
        elif scope["path"] != PATH:
            status = 404
        elif scope["method"] != "GET":
            status, about = 405, [(b"allow", b"GET")]
        else:
            kind, body = await to_thread.run_sync(exposition, limiter=one)
            about = [(b"content-type", kind.encode())]
        with anyio.move_on_after(STALL_S):
            headers = [*about, (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    return serve_counted


def _is_host_loopback(headers: Any) -> bool:
    """Return whether a request's `Host` is loopback (against DNS rebinding; RFC 9110, section 7.2)."""
    host = next((value.decode("latin-1") for name, value in headers if name == b"host"), "")
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
