"""The web application: the page, its streams, and the actions."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, cast, get_args

import anyio
import anyio.to_thread
from grpc import StatusCode
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from hubbub_client.data.records import EventKind
from hubbub_client.errors import (
    FailedPrecondition,
    HubbubError,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unauthenticated,
)
from hubbub_http import LET_IN
from hubbub_shared.legible import is_text
from hubbub_web.access.entrance import Entrance
from hubbub_web.access.guard import MAX_BODY_BYTES, TOKEN_HEADER, Guard, Site
from hubbub_web.access.sessions import Session, Sessions
from hubbub_web.actions import ACTIONS
from hubbub_web.push import Pushing, subscription
from hubbub_web.records.event_stream import EventStream
from hubbub_web.records.feed import Feed

STATIC = Path(__file__).parent / "static"

AT_THE_ROOT = {"/sw.js": "js/sw.js", "/manifest.webmanifest": "manifest.webmanifest"}
"""Files that a browser takes for all of the page only if they are at its root."""

STATUS = {
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.NOT_FOUND: 404,
    StatusCode.ALREADY_EXISTS: 409,
    StatusCode.FAILED_PRECONDITION: 409,
    StatusCode.ABORTED: 409,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.DEADLINE_EXCEEDED: 504,
}


class Bridge:
    """Routes over one feed and one set of sessions."""

    def __init__(self, feed: Feed, sessions: Sessions, entrance: Entrance, port: int, site: Site) -> None:
        self._feed = feed
        self._sessions = sessions
        self._entrance = entrance
        # Cookies do not tell ports apart: two bridges on one machine must not overwrite each other's.
        self._cookie = f"{'__Host-' if site.secure else ''}hubbub-{port}"
        self._site = site
        self.pushing: Pushing | None = None

    def application(self) -> Starlette:
        """Return the ASGI application."""
        return Starlette(
            routes=[
                Route("/", self._page),
                *(Route(path, _file(name)) for path, name in AT_THE_ROOT.items()),
                Route("/api/login", self._login, methods=["POST"]),
                Route("/api/logout", self._logout, methods=["POST"]),
                Route("/api/link", self._link, methods=["POST"]),
                Route("/api/push-key", self._push_key, methods=["POST"]),
                Route("/api/push-to", self._push_to, methods=["POST"]),
                Route("/api/feed", self._stream, methods=["POST"]),
                Route("/api/events", self._events, methods=["POST"]),
                Route("/api/{action}", self._act, methods=["POST"]),
                Mount("/static", StaticFiles(directory=STATIC)),
            ],
            middleware=[Middleware(Guard, self._site)],
            exception_handlers={HubbubError: _refused, ClientDisconnect: _left},
        )

    async def _page(self, _request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def _login(self, request: Request) -> Response:
        to = await self._entrance.use(str((await _body(request)).get("link", "")))
        session = self._found(request)
        if session is not None and to is not None:  # a link of a notification, in a browser that is in already
            return JSONResponse({"token": session.token, "to": to})
        cookie, session = self._sessions.begin()
        _let_in(request)
        response = JSONResponse({"token": session.token, "to": to})
        response.set_cookie(self._cookie, cookie, httponly=True, samesite="strict", path="/", secure=self._site.secure)
        return response

    async def _logout(self, request: Request) -> Response:
        self._sessions.leave(self._session(request))
        response = JSONResponse({})
        response.delete_cookie(self._cookie, path="/", httponly=True, samesite="strict", secure=self._site.secure)
        return response

    async def _link(self, request: Request) -> Response:
        self._session(request)
        return JSONResponse({"url": f"{self._site.scheme}://{request.headers['host']}/#login={self._sessions.link()}"})

    async def _push_key(self, request: Request) -> Response:
        """Say with which key a browser subscribes; null if nothing is pushed here."""
        self._session(request)
        try:
            key = await anyio.to_thread.run_sync(self.pushing.key) if self.pushing else None
            return JSONResponse({"key": key})
        except (OSError, ValueError) as error:
            raise FailedPrecondition(f"there is no key to push with: {error}", reason="PUSH_NOT_SERVED") from None

    async def _push_to(self, request: Request) -> Response:
        """Push to this browser from now on, or not any more."""
        session = self._session(request)
        given = (await _body(request)).get("subscription")
        if given is not None and self.pushing is None:
            raise FailedPrecondition(
                "nothing is pushed here: the package http_ece is not installed", reason="PUSH_NOT_SERVED"
            )
        wanted = subscription(given, self.pushing.hosts) if given is not None and self.pushing else None
        self._sessions.subscribe(session, wanted)
        return JSONResponse({})

    async def _stream(self, request: Request) -> Response:
        session = self._session(request)
        token = str((await _body(request)).get("token", ""))

        async def lines() -> AsyncGenerator[bytes, None]:
            async with aclosing(self._feed.lines(token)) as news:
                async for chunk in news:
                    if session.over:
                        return
                    yield chunk

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def _events(self, request: Request) -> Response:
        session = self._session(request)
        body = await _body(request)
        server, kind = str(body.get("server", "")), str(body.get("kind", ""))
        if not is_text(server):
            raise InvalidArgument("no server has such a name", violations=(("server", "is not a text"),))
        if kind not in ("", *get_args(EventKind)):
            raise InvalidArgument("there is no such kind of event", violations=(("kind", "is not known"),))
        stream = EventStream(await session.hub(), server or None, cast("EventKind | None", kind or None))
        return _Listening(stream, session, self._feed.closed)

    async def _act(self, request: Request) -> Response:
        session = self._session(request)
        name = request.path_params["action"]
        if name not in ACTIONS:
            raise NotFound(f"there is nothing like {name}", reason="ACTION_NOT_FOUND")
        try:
            return JSONResponse(await ACTIONS[name](session, **await _body(request)))
        except ValidationError as error:
            found = tuple((".".join(map(str, each["loc"])), each["msg"]) for each in error.errors())
            raise InvalidArgument("the page asked in a wrong way", violations=found) from None
        except ValueError as error:
            raise InvalidArgument(str(error)) from None

    def _found(self, request: Request) -> Session | None:
        return self._sessions.find(request.cookies.get(self._cookie), request.headers.get(TOKEN_HEADER))

    def _session(self, request: Request) -> Session:
        found = self._found(request)
        if found is None:
            raise Unauthenticated("log in with a link from `hubbub web`", reason="LOGIN_NEEDED")
        _let_in(request)
        return found


def _let_in(request: Request) -> None:
    """Note that a request's connection is no stranger's."""
    let_in: Callable[[], None] = request.scope.get(LET_IN, lambda: None)
    let_in()


class _Listening(StreamingResponse):
    """A stream of events, while the browser reads and is logged in, until the page is `closed`."""

    def __init__(self, stream: EventStream, session: Session, closed: anyio.Event) -> None:
        async def lines() -> AsyncGenerator[bytes, None]:
            async with aclosing(stream.lines()) as chunks:
                async for chunk in chunks:
                    if session.over:
                        return
                    yield chunk

        super().__init__(lines(), media_type="application/x-ndjson")
        self._stream = stream
        self._closed = closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Follow the events and send them."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._stream.follow)
            group.start_soon(self._close_with_the_page)
            with suppress(ClientDisconnect):
                await super().__call__(scope, receive, send)
            group.cancel_scope.cancel()

    async def _close_with_the_page(self) -> None:
        await self._closed.wait()
        self._stream.close()


def _file(name: str) -> Callable[[Request], Awaitable[Response]]:
    types = {".webmanifest": "application/manifest+json", ".js": "text/javascript"}

    async def serve(_request: Request) -> Response:
        return FileResponse(STATIC / name, media_type=types[Path(name).suffix])

    return serve


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request's body. Raises InvalidArgument, ResourceExhausted."""
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > MAX_BODY_BYTES:
            raise ResourceExhausted(f"at most {MAX_BODY_BYTES} bytes are taken", reason="BODY_TOO_LARGE")
    try:
        value = json.loads(taken)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidArgument("the body must be a JSON object", reason="BODY_NOT_JSON")
    return cast("dict[str, Any]", value)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HubbubError)
    shape = {
        "code": error.code.name,
        "reason": error.reason,
        "message": error.message,
        "metadata": error.metadata,
        "violations": error.violations,
        "retry_after_s": error.retry_after_s,
        "help_url": error.help_url,
    }
    return JSONResponse({"error": shape}, STATUS.get(error.code, 502))


async def _left(_request: Request, _error: Exception) -> Response:
    """Answer a browser that has left within its request: nobody reads this, and nothing is wrong here."""
    return Response(status_code=400)
