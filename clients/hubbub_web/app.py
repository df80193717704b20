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
from hubbub_http import MARK_AUTHENTICATED
from hubbub_shared.legible import is_text
from hubbub_web import actions, approval_actions
from hubbub_web.access.entrance import Entrance
from hubbub_web.access.guard import MAX_BODY_BYTES, TOKEN_HEADER, Guard, Site
from hubbub_web.access.sessions import Session, Sessions
from hubbub_web.push import PushGateway, parse_subscription
from hubbub_web.records.event_stream import EventStream
from hubbub_web.records.feed import Feed
from hubbub_web.records.followed_stream import FollowedStream

STATIC = Path(__file__).parent / "static"

ACTIONS = {**actions.ACTIONS, **approval_actions.ACTIONS}

ROOT_FILES = {"/": "index.html", "/sw.js": "js/sw.js", "/manifest.webmanifest": "manifest.webmanifest"}
"""The page itself, and files that a browser takes for all of it only if they are at its root."""

MAX_NAME_CHARS = 1000
"""Characters of the names of a server and of a session."""

NDJSON = "application/x-ndjson"
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
        self.push_gateway: PushGateway | None = None

    def application(self) -> Starlette:
        """Return the web application of this bridge."""
        return Starlette(
            routes=[
                *(Route(path, _serve_file(name)) for path, name in ROOT_FILES.items()),
                Route("/api/login", self._log_in, methods=["POST"]),
                Route("/api/logout", self._log_out, methods=["POST"]),
                Route("/api/link", self._create_link, methods=["POST"]),
                Route("/api/push-key", self._serve_push_key, methods=["POST"]),
                Route("/api/push-to", self._set_push_subscription, methods=["POST"]),
                Route("/api/feed", self._serve_feed, methods=["POST"]),
                Route("/api/events", self._serve_events, methods=["POST"]),
                Route("/api/sessions", self._serve_sessions, methods=["POST"]),
                Route("/api/{action}", self._run_action, methods=["POST"]),
                Mount("/static", StaticFiles(directory=STATIC)),
            ],
            middleware=[Middleware(Guard, self._site)],
            exception_handlers={HubbubError: _error_response, ClientDisconnect: _disconnect_response},
        )

    async def _log_in(self, request: Request) -> Response:
        """Use a one-time link up, and begin a session of this browser. A browser that is logged in keeps its session if
        the link is a notification's.

        Return the session's token, and where the link leads. Raises Unauthenticated for a useless link.
        """
        to = await self._entrance.use(str((await _read_body(request)).get("link", "")))
        session = self._find_session(request)
        if session is not None and to is not None:  # a notification's link in a browser that is logged in
            return JSONResponse({"token": session.token, "to": to})
        cookie, session = self._sessions.begin_session()
        _admit_connection(request)
        response = JSONResponse({"token": session.token, "to": to})
        response.set_cookie(self._cookie, cookie, httponly=True, samesite="strict", path="/", secure=self._site.secure)
        return response

    async def _log_out(self, request: Request) -> Response:
        """End the session of this browser."""
        self._sessions.end_session(self._require_session(request))
        response = JSONResponse({})
        response.delete_cookie(self._cookie, path="/", httponly=True, samesite="strict", secure=self._site.secure)
        return response

    async def _create_link(self, request: Request) -> Response:
        """Return a one-time link for another browser."""
        self._require_session(request)
        return JSONResponse(
            {"url": f"{self._site.scheme}://{request.headers['host']}/#login={self._sessions.create_link()}"}
        )

    async def _serve_push_key(self, request: Request) -> Response:
        """Return the key with which a browser subscribes to pushes; null if this bridge sends no pushes."""
        self._require_session(request)
        try:
            key = await anyio.to_thread.run_sync(self.push_gateway.key) if self.push_gateway else None
            return JSONResponse({"key": key})
        except (OSError, ValueError) as error:
            raise FailedPrecondition(f"there is no key to push with: {error}", reason="PUSH_NOT_SERVED") from None

    async def _set_push_subscription(self, request: Request) -> Response:
        """Store where this browser gets its pushes; without a subscription, stop them."""
        session = self._require_session(request)
        document = (await _read_body(request)).get("subscription")
        if document is None:
            self._sessions.subscribe(session, None)
        elif self.push_gateway is None:
            raise FailedPrecondition(
                "nothing is pushed here: the package http_ece is not installed", reason="PUSH_NOT_SERVED"
            )
        else:
            self._sessions.subscribe(session, parse_subscription(document, self.push_gateway.hosts))
        return JSONResponse({})

    async def _serve_feed(self, request: Request) -> Response:
        """Stream the changes of all records, from the token in the body on."""
        session = self._require_session(request)
        token = str((await _read_body(request)).get("token", ""))
        return StreamingResponse(_until_logout(self._feed.lines(token), session), media_type=NDJSON)

    async def _serve_events(self, request: Request) -> Response:
        """Stream the events of servers: of all, or of the `server` and `kind` in the body."""
        session = self._require_session(request)
        body = await _read_body(request)
        server, kind = str(body.get("server", "")), str(body.get("kind", ""))
        if not is_text(server):
            raise InvalidArgument("no server has such a name", violations=(("server", "is not a text"),))
        if kind not in ("", *get_args(EventKind)):
            raise InvalidArgument("there is no such kind of event", violations=(("kind", "is not known"),))
        stream = EventStream(await session.hub(), server or None, cast("EventKind | None", kind or None))
        return _FollowedResponse(stream, session, self._feed.closed)

    async def _serve_sessions(self, request: Request) -> Response:
        """Stream the sessions of coding agents: all in short, or the one with this `server` and `id`."""
        session = self._require_session(request)
        body = await _read_body(request)
        server, id_ = str(body.get("server", "")), str(body.get("id", ""))
        if not (is_text(server) and is_text(id_)) or len(server) > MAX_NAME_CHARS or len(id_) > MAX_NAME_CHARS:
            raise InvalidArgument("no session has such an id", violations=(("id", "is not a short text"),))
        from hubbub_web.records.session_stream import SessionStream  # imported late: few pages show agents

        return _FollowedResponse(SessionStream(await session.hub(), server, id_), session, self._feed.closed)

    async def _run_action(self, request: Request) -> Response:
        """Run the action that the path names with the arguments in the body. Raises HubbubError."""
        session = self._require_session(request)
        name = request.path_params["action"]
        if name not in ACTIONS:
            raise NotFound(f"there is nothing like {name}", reason="ACTION_NOT_FOUND")
        try:
            return JSONResponse(await ACTIONS[name](session, **await _read_body(request)))
        except ValidationError as error:
            violations = tuple((".".join(map(str, each["loc"])), each["msg"]) for each in error.errors())
            raise InvalidArgument("the page asked in a wrong way", violations=violations) from None
        except ValueError as error:
            raise InvalidArgument(str(error)) from None

    def _find_session(self, request: Request) -> Session | None:
        """Return the session of a request by its cookie and its token; None if there is no such session."""
        return self._sessions.find(request.cookies.get(self._cookie), request.headers.get(TOKEN_HEADER))

    def _require_session(self, request: Request) -> Session:
        """Return the session of a request, and note that its connection is a person's.

        Raises Unauthenticated if there is no session.
        """
        session = self._find_session(request)
        if session is None:
            raise Unauthenticated("log in with a link from `hubbub web`", reason="LOGIN_NEEDED")
        _admit_connection(request)
        return session


def _admit_connection(request: Request) -> None:
    """Tell the server that a request's connection is a person's: it counts no more as an unauthenticated connection."""
    admit: Callable[[], None] = request.scope.get(MARK_AUTHENTICATED, lambda: None)
    admit()


async def _until_logout(lines: AsyncGenerator[bytes], session: Session) -> AsyncGenerator[bytes]:
    """Yield the lines until the session ends."""
    async with aclosing(lines):
        async for line in lines:
            if session.is_over:
                return
            yield line


class _FollowedResponse(StreamingResponse):
    """A stream, while the browser reads and is logged in, until the page is `closed`."""

    def __init__(self, stream: FollowedStream, session: Session, closed: anyio.Event) -> None:
        super().__init__(_until_logout(stream.lines(), session), media_type=NDJSON)
        self._stream = stream
        self._closed = closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines of the stream while `follow` fills it, until the browser leaves or the page is closed."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._stream.follow)
            group.start_soon(self._close_with_the_page)
            with suppress(ClientDisconnect):
                await super().__call__(scope, receive, send)
            group.cancel_scope.cancel()

    async def _close_with_the_page(self) -> None:
        """Close the stream once the page is closed."""
        await self._closed.wait()
        self._stream.close()


def _serve_file(name: str) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that serves one file of the page."""
    types = {".html": "text/html", ".webmanifest": "application/manifest+json", ".js": "text/javascript"}

    async def serve(_request: Request) -> Response:
        return FileResponse(STATIC / name, media_type=types[Path(name).suffix])

    return serve


async def _read_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request's body. Raises InvalidArgument, ResourceExhausted."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ResourceExhausted(f"at most {MAX_BODY_BYTES} bytes are taken", reason="BODY_TOO_LARGE")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidArgument("the body must be a JSON object", reason="BODY_NOT_JSON")
    return cast("dict[str, Any]", value)


async def _error_response(_request: Request, error: Exception) -> Response:
    """Return the response for an error of the hub or of this bridge, as JSON."""
    assert isinstance(error, HubbubError)
    fields = {
        "code": error.code.name,
        "reason": error.reason,
        "message": error.message,
        "metadata": error.metadata,
        "violations": error.violations,
        "retry_after_s": error.retry_after_s,
        "help_url": error.help_url,
    }
    return JSONResponse({"error": fields}, STATUS.get(error.code, 502))


async def _disconnect_response(_request: Request, _error: Exception) -> Response:
    """Return a response for a browser that has left within its request: nobody reads it."""
    return Response(status_code=400)
