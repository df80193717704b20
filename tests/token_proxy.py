"""A proxy that adds a bearer token, for clients that cannot send one; all else passes as it is, streams too."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import httpcore2
import uvicorn
from starlette.types import Message, Receive, Scope, Send

OF_ONE_CONNECTION = {b"connection", b"keep-alive", b"transfer-encoding"}
"""Headers that belong to a connection, of which there are two here (RFC 9110, section 7.6.1)."""


@dataclass(frozen=True)
class TokenProxy:
    """The ASGI application: `origin` is where it sends what it is sent."""

    origin: str
    token: str
    pool: httpcore2.AsyncConnectionPool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        async with anyio.create_task_group() as both:

            async def pass_on() -> None:
                await self._pass_on(scope, body, send)
                both.cancel_scope.cancel()

            both.start_soon(pass_on)
            # A client that goes away takes its request with it.
            while (await receive())["type"] != "http.disconnect":
                pass
            both.cancel_scope.cancel()

    async def _pass_on(self, scope: Scope, body: bytes, send: Send) -> None:
        query = scope["query_string"].decode()
        url = f"{self.origin}{scope['path']}" + (f"?{query}" if query else "")
        headers = [each for each in scope["headers"] if each[0] not in {*OF_ONE_CONNECTION, b"authorization"}]
        headers.append((b"authorization", f"Bearer {self.token}".encode()))
        async with self.pool.stream(scope["method"], url, headers=headers, content=body) as response:
            kept = [each for each in response.headers if each[0].lower() not in OF_ONE_CONNECTION]
            await send({"type": "http.response.start", "status": response.status, "headers": kept})
            async for chunk in response.aiter_stream():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> bytes:
    whole = b""
    while True:
        message: Message = await receive()
        whole += message.get("body", b"")
        if not message.get("more_body"):
            return whole


@asynccontextmanager
async def adding_token(origin: str, token: str) -> AsyncIterator[str]:
    """Where the same is served without a token."""
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        async with httpcore2.AsyncConnectionPool(max_connections=None) as pool, anyio.create_task_group() as tasks:
            app = TokenProxy(origin, token, pool)
            # Not httptools: it leaves white space after the values of fields, which no client may send on.
            settings = uvicorn.Config(
                app, http="h11", log_level="error", lifespan="off", ws="none", timeout_graceful_shutdown=1
            )
            server = uvicorn.Server(settings)
            tasks.start_soon(server.serve, [listening])
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.should_exit = server.force_exit = True
