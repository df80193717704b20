"""Sessions of hosts whose revision has a handshake (up to 2025-11-25)."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from itertools import count
from typing import Any, Final

from hubbubd.core.access import Principal
from hubbubd.core.jsonrpc import INVALID_REQUEST
from hubbubd.downstream import messages
from hubbubd.downstream.endpoint import Endpoint
from hubbubd.downstream.host import Exchange, Host, Outlet, Teller
from hubbubd.downstream.limits import DEFAULTS, Limits
from hubbubd.downstream.messages import Id, Notification, Refusal, Request, Response
from hubbubd.downstream.replay import Replays
from hubbubd.errors import ResourceExhausted

WAITING_BYTES: Final = 256 * 1024
"""Bytes of what belongs to no request that wait while the host listens to nothing; beyond it they are dropped."""

LEAST_PAUSE_S: Final = 1.0
"""The least number of seconds between two looks for idle sessions."""

Serve = Callable[[Exchange], Coroutine[Any, Any, bytes]]


class Session:
    """One host: the requests it has open, and where it can be told things."""

    def __init__(
        self,
        host: Host,
        endpoint: Endpoint,
        clock: Callable[[], float],
        limits: Limits = DEFAULTS,
        used: Callable[["Session"], None] = lambda _: None,
    ) -> None:
        """`used` is told whenever it was used."""
        self.id = secrets.token_urlsafe(24)
        self.host = host
        self.endpoint = endpoint
        self.outlet = Outlet(WAITING_BYTES)
        """What belongs to no request: the host's own stream, or what waits for it."""
        self.replays = Replays(limits)
        self.standing = endpoint.standing(host, self._tell)
        self.ended = False
        self.listening = 0
        """How many streams of its own the host has open."""
        self._clock = clock
        self._limits = limits
        self._used = used
        self._running: dict[Id, asyncio.Task[bytes]] = {}
        self._ids = count(1)
        self._asked: dict[Id, asyncio.Future[Response]] = {}
        self.used_at = clock()
        endpoint.joined(host)

    @property
    def busy(self) -> bool:
        """Whether a request is being served, or the host listens."""
        return bool(self._running) or self.listening > 0

    @property
    def running(self) -> int:
        """How many requests are being served."""
        return len(self._running)

    def begin(
        self, request: Request, outlet: Teller, call_key: str | None = None, serve: Serve | None = None
    ) -> asyncio.Task[bytes]:
        """Start to serve a request; the task returns the response. `serve` is used instead of the endpoint's own.

        Raises ResourceExhausted, and Refusal for an id that is in use.
        """
        self.touch()
        if request.id in self._running:
            raise Refusal(INVALID_REQUEST, "a request with this id is open; each has an id of its own")
        most = self._limits.requests_per_session
        if len(self._running) >= most:
            raise ResourceExhausted(
                f"{most} requests of this session are open", reason="TOO_MANY_REQUESTS", metadata={"limit": str(most)}
            )
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
        task = asyncio.get_running_loop().create_task((serve or self.endpoint.serve)(exchange))
        self._running[request.id] = task
        task.add_done_callback(lambda _: self._done(request.id))
        return task

    def take(self, message: Notification | Response) -> None:
        """Take what needs no response."""
        self.touch()
        if isinstance(message, Response):
            asked = self._asked.pop(message.id, None)
            if asked is not None and not asked.done():
                asked.set_result(message)
        elif message.method == "notifications/cancelled":
            task = self._running.get(_hashable(message.params.get("requestId")))
            if task is not None:
                task.cancel()

    async def _ask(self, outlet: Teller, method: str, params: dict[str, Any]) -> Response:
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

    def listen(self) -> Outlet:
        """Return the host's own stream for a new connection, with what waits for it; an older connection loses it."""
        before, self.outlet = self.outlet, Outlet()
        for message in before.take():
            self.outlet.tell(message)
        before.close()
        self.listening += 1
        return self.outlet

    def left(self, outlet: Outlet) -> None:
        """Note that the connection of a stream of the host's own is gone."""
        self.listening -= 1
        if self.outlet is outlet:
            self.outlet = Outlet(WAITING_BYTES)
        self.touch()

    def act_for(self, principal: Principal) -> None:
        """Serve a principal with what it may do now."""
        if principal != self.host.principal:
            self.host.principal = principal
            if not self.listening:
                self.outlet.take()  # it may be about what the principal may no longer know

    def touch(self) -> None:
        """Note that the session is in use."""
        self.used_at = self._clock()
        self._used(self)

    def end(self) -> None:
        """End the session and what it has open."""
        self.ended = True
        self.endpoint.parted(self.host)
        self.standing.close()
        self.outlet.close()
        for task in self._running.values():
            task.cancel()
        self.replays.clear()

    def _tell(self, message: bytes, once: bool) -> None:
        (self.outlet.tell_once if once else self.outlet.tell)(message)

    def _done(self, id_: Id) -> None:
        del self._running[id_]
        self.touch()


class Sessions:
    """All sessions of all endpoints. Each step costs the same however many there are."""

    def __init__(self, clock: Callable[[], float], limits: Callable[[], Limits] = Limits) -> None:
        """`limits` returns the current ones; a session keeps those that it began with."""
        self._clock = clock
        self._limits = limits
        self._sessions = OrderedDict[str, Session]()
        """By id; the one that was idle for the longest time is first."""
        self._of: dict[str, OrderedDict[str, Session]] = {}
        """The same by principal."""
        self._timer: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, host: Host, endpoint: Endpoint) -> Session:
        """Return a new session. Raises ResourceExhausted."""
        limits = self._limits()
        self._make_room(host.principal.name, limits.sessions_per_principal)
        session = Session(host, endpoint, self._clock, limits, self._touched)
        self._sessions[session.id] = session
        self._of.setdefault(host.principal.name, OrderedDict())[session.id] = session
        self._watch()
        return session

    def find(self, id_: str, principal: Principal, endpoint: Endpoint) -> Session | None:
        """Return a session, if it is of this principal and endpoint."""
        session = self._sessions.get(id_)
        if session is None or session.endpoint is not endpoint:
            return None
        if session.host.principal.name != principal.name:
            return None
        session.act_for(principal)
        session.touch()
        return session

    def end(self, session: Session) -> None:
        """End a session."""
        if self._sessions.pop(session.id, None) is not None:
            own = self._of[session.host.principal.name]
            del own[session.id]
            if not own:
                del self._of[session.host.principal.name]
        session.end()

    def end_idle(self) -> None:
        """End the sessions that have been idle for long."""
        before = self._clock() - self._limits().idle_s
        while (session := next(iter(self), None)) is not None and session.used_at <= before:
            if session.busy:
                session.touch()
            else:
                self.end(session)

    def close(self) -> None:
        """End all sessions."""
        for session in list(self):
            self.end(session)
        if self._timer is not None:
            self._timer.cancel()

    def _make_room(self, principal: str, most: int) -> None:
        own = self._of.get(principal, OrderedDict[str, Session]())
        if len(own) < most:
            return
        idle = next((each for each in own.values() if not each.busy), None)
        if idle is None:
            raise ResourceExhausted(
                f"{principal} has {most} sessions, and all are at work",
                reason="TOO_MANY_SESSIONS",
                metadata={"limit": str(most), "principal": principal},
            )
        self.end(idle)

    def _touched(self, session: Session) -> None:
        if session.id in self._sessions:
            self._sessions.move_to_end(session.id)
            self._of[session.host.principal.name].move_to_end(session.id)

    def _watch(self) -> None:
        """Look for idle sessions when the first of them could be one."""
        first = next(iter(self), None)
        if self._timer is None and first is not None:
            wait_s = first.used_at + self._limits().idle_s - self._clock()
            self._timer = asyncio.get_running_loop().call_later(max(wait_s, LEAST_PAUSE_S), self._look)

    def _look(self) -> None:
        self._timer = None
        self.end_idle()
        self._watch()


def _hashable(value: Any) -> Id:
    return value if isinstance(value, str | int | float) else ""
