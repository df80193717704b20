"""Sessions of hosts whose revision has a handshake (up to 2025-11-25)."""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any, Final

from hubbubd.core.access import Principal
from hubbubd.downstream import messages
from hubbubd.downstream.endpoint import Endpoint
from hubbubd.downstream.host import Exchange, Host, Outlet
from hubbubd.downstream.messages import Id, Notification, Request, Response
from hubbubd.errors import ResourceExhausted

PER_PRINCIPAL: Final = 100
"""The most sessions of one principal; one more ends the one that was idle for the longest time."""

IDLE_S: Final = 1800.0
"""Seconds after which a session that does nothing ends."""

MAX_RUNNING: Final = 100
"""The most requests of one session that are served at a time."""


class Session:
    """One host: the requests it has open, and where it can be told things."""

    def __init__(self, host: Host, endpoint: Endpoint, clock: Callable[[], float]) -> None:
        self.id = secrets.token_urlsafe(24)
        self.host = host
        self.endpoint = endpoint
        self.outlet = Outlet()
        """What belongs to no request: it waits here for the host's own stream."""
        self.standing = endpoint.standing(host, self._tell)
        self.ended = False
        self._clock = clock
        self._running: dict[Id, asyncio.Task[bytes]] = {}
        self._ids = count(1)
        self._asked: dict[Id, asyncio.Future[Response]] = {}
        self.used_at = clock()

    @property
    def busy(self) -> bool:
        """Whether a request is being served."""
        return bool(self._running)

    def begin(self, request: Request, outlet: Outlet, call_key: str | None = None) -> asyncio.Task[bytes]:
        """Start to serve a request; the task returns the response. Raises ResourceExhausted."""
        self.used_at = self._clock()
        if len(self._running) >= MAX_RUNNING:
            raise ResourceExhausted(f"{MAX_RUNNING} requests of this session are open", reason="TOO_MANY_REQUESTS")
        exchange = Exchange(
            id=request.id,
            method=request.method,
            params=request.params,
            host=self.host,
            tell=outlet.tell,
            call_key=call_key,
            standing=self.standing,
            ask=partial(self._ask, outlet),
        )
        task = asyncio.get_running_loop().create_task(self.endpoint.serve(exchange))
        self._running[request.id] = task
        task.add_done_callback(lambda _: self._done(request.id, task))
        return task

    def take(self, message: Notification | Response) -> None:
        """Take what needs no response."""
        self.used_at = self._clock()
        if isinstance(message, Response):
            asked = self._asked.pop(message.id, None)
            if asked is not None and not asked.done():
                asked.set_result(message)
        elif message.method == "notifications/cancelled":
            task = self._running.get(_hashable(message.params.get("requestId")))
            if task is not None:
                task.cancel()

    async def _ask(self, outlet: Outlet, method: str, params: dict[str, Any]) -> Response:
        """Send a request of the hub on a stream, and return the host's response; tell it if that is cancelled."""
        id_ = f"hubbub-{next(self._ids)}"
        asked = self._asked[id_] = asyncio.get_running_loop().create_future()
        outlet.tell(messages.request(id_, method, params))
        try:
            return await asked
        except asyncio.CancelledError:
            why = {"requestId": id_, "reason": "it is not needed any more"}
            outlet.tell(messages.notification("notifications/cancelled", why))
            raise
        finally:
            self._asked.pop(id_, None)

    def end(self) -> None:
        """End the session and what it has open."""
        self.ended = True
        self.standing.close()
        self.outlet.close()
        for task in self._running.values():
            task.cancel()

    def _tell(self, message: bytes, once: bool) -> None:
        (self.outlet.tell_once if once else self.outlet.tell)(message)

    def _done(self, id_: Id, task: asyncio.Task[bytes]) -> None:
        self.used_at = self._clock()
        if self._running.get(id_) is task:
            del self._running[id_]


class Sessions:
    """All sessions of all endpoints."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def open(self, host: Host, endpoint: Endpoint) -> Session:
        """Return a new session. Raises ResourceExhausted."""
        own = [each for each in self._sessions.values() if each.host.principal.name == host.principal.name]
        if len(own) >= PER_PRINCIPAL:
            idle = min((each for each in own if not each.busy), key=lambda each: each.used_at, default=None)
            if idle is None:
                raise ResourceExhausted(f"{PER_PRINCIPAL} sessions are at work", reason="TOO_MANY_SESSIONS")
            self.end(idle)
        session = Session(host, endpoint, self._clock)
        self._sessions[session.id] = session
        return session

    def find(self, id_: str, principal: Principal, endpoint: Endpoint) -> Session | None:
        """Return a session, if it is of this principal and endpoint."""
        session = self._sessions.get(id_)
        if session is None or session.endpoint.view.name != endpoint.view.name:
            return None
        if session.host.principal.name != principal.name:
            return None
        session.host.principal = principal  # what it may do now
        return session

    def end(self, session: Session) -> None:
        """End a session."""
        self._sessions.pop(session.id, None)
        session.end()

    def end_idle(self) -> None:
        """End the sessions that have been idle for long."""
        before = self._clock() - IDLE_S
        for session in [each for each in self if not each.busy and each.used_at < before]:
            self.end(session)


def _hashable(value: Any) -> Id:
    return value if isinstance(value, str | int | float) else ""
