"""All sessions of hosts over HTTP, of this process and of those before it.

    begin ──> a record in the store, durable ──> the host hears of its session
    request ──> the session as this process has it ── or taken up from its record ──> served
    subscription, level of log messages ──> the record ──> every member of a fleet that has the session, too
    DELETE, idle for long, its token revoked ──> the record is deleted ──> no process takes it up again

docs/design/sessions.md says why sessions are stored, and not signed.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from hubbubd import payload
from hubbubd.clock import Clock
from hubbubd.core.access import Principal
from hubbubd.core.host_sessions import HostSession, record_id
from hubbubd.downstream.endpoint import Endpoint
from hubbubd.downstream.host import Host
from hubbubd.downstream.limits import Limits
from hubbubd.downstream.session import Session
from hubbubd.errors import ResourceExhausted
from hubbubd.runtime.hub import Hub

LEAST_PAUSE_S: Final = 1.0
"""The least number of seconds between two looks for idle sessions."""

MOST: Final = 10_000
"""Sessions of all principals; beyond it the one that was idle for the longest time ends."""

ELSEWHERE_S: Final = 2 * 60.0
"""Seconds for which a session may be in use at another member before this one hears of it, whether it has it, too."""


@dataclass(slots=True)
class _Place:
    """A session, by whom it is, and when it was used last, on the steady clock; None where it was not taken up yet."""

    principal: str
    used_at: float
    session: Session | None = None


class Sessions:
    """All sessions of all endpoints. Each step costs the same however many there are."""

    def __init__(self, hub: Hub, limits: Callable[[], Limits] = Limits) -> None:
        """`limits` returns the current ones; a session keeps those that it began with."""
        self._hub = hub
        self._clock: Clock = hub.clock
        self._kept = hub.host_sessions
        self._limits = limits
        self._places = OrderedDict[str, _Place]()
        """By the id of the record; the one that was idle for the longest time is first."""
        self._of: dict[str, OrderedDict[str, _Place]] = {}
        """The same by principal."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        for record in self._kept.all():
            self._add(record.id, record.principal)
        self._kept.follow(self._followed)

    def __iter__(self) -> Iterator[Session]:
        """Iterate over the sessions that this process has taken up."""
        return (place.session for place in self._places.values() if place.session is not None)

    def __len__(self) -> int:
        """Return how many sessions there are, those included that nobody has used since the start."""
        return len(self._places)

    async def begin(self, host: Host, endpoint: Endpoint) -> Session:
        """Return a new session; it is durable. Raises ResourceExhausted."""
        limits = self._limits()
        self._make_room(host.principal.name, limits.sessions_per_principal)
        session = self._made(secrets.token_urlsafe(24), host, endpoint)
        self._add(session.key, host.principal.name).session = session
        now = self._clock.now()
        record = HostSession(
            id=session.key,
            principal=host.principal.name,
            credential=host.principal.credential,
            endpoint=endpoint.view.name,
            revision=host.revision,
            info=payload.dumps(host.info),
            capabilities=payload.dumps(host.capabilities),
            begun_at=now,
            used_at=now,
        )
        await self._kept.begin(record)
        return session

    async def find(self, id_: str, principal: Principal, endpoint: Endpoint) -> Session | None:
        """Return a session, if it is of this principal and endpoint. Raises Unavailable."""
        key = record_id(id_)
        if key not in self._places and await self._hub.find_host_session(key) is None:
            return None
        place = self._places.get(key)
        if place is None or place.principal != principal.name:
            return None
        session = place.session or self._taken_up(id_, place, principal, endpoint)
        if session is None or session.endpoint is not endpoint:
            return None
        session.act_for(principal)
        session.touch()
        return session

    async def end(self, session: Session) -> None:
        """End a session for good. Raises Unavailable: the next process would take it up."""
        await self._kept.end(session.key)
        self._remove(session.key)

    def end_idle(self) -> None:
        """End the sessions that have been idle for long."""
        idle_s, now = self._limits().idle_s, self._clock.steady()
        while (key := next(iter(self._places), None)) is not None and self._places[key].used_at <= now - idle_s:
            place = self._places[key]
            if place.session is not None and place.session.busy:
                place.session.touch()
            elif self._hub.ownership.me and place.used_at > now - idle_s - ELSEWHERE_S:
                break
            else:
                self._drop(key)

    def close(self) -> None:
        """End all that is open; the sessions stay for the next process."""
        self._closed = True
        for session in list(self):
            session.end()
        self._places.clear()
        self._of.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _made(self, id_: str, host: Host, endpoint: Endpoint) -> Session:
        session = Session(host, endpoint, self._clock.steady, self._limits(), used=self._touched, id_=id_)
        session.standing.keep = partial(self._kept.change, session.key)
        return session

    def _taken_up(self, id_: str, place: _Place, principal: Principal, endpoint: Endpoint) -> Session | None:
        """Return a session of an earlier process, or of another member, as its record says; None if it is elsewhere."""
        record = self._kept.get(record_id(id_))
        if record is None or record.endpoint != endpoint.view.name:
            return None
        host = Host(
            principal=principal,
            revision=record.revision,
            info=payload.loads(record.info),
            capabilities=payload.loads(record.capabilities),
        )
        place.session = self._made(id_, host, endpoint)
        place.session.standing.resume(record.level, record.resources)
        return place.session

    def _followed(self, before: HostSession | None, after: HostSession | None) -> None:
        """Do here what was done to a session, perhaps at another member."""
        if self._closed:
            return
        if after is None:
            if before is not None:
                self._remove(before.id)
            return
        place = self._places.get(after.id) or self._add(after.id, after.principal)
        if before is None or before.used_at != after.used_at:
            self._used(after.id, place)
        if before is not None and place.session is not None:
            place.session.standing.follow(before, after)

    def _add(self, key: str, principal: str) -> _Place:
        place = self._places[key] = _Place(principal, self._clock.steady())
        self._of.setdefault(principal, OrderedDict())[key] = place
        self._watch()
        return place

    def _remove(self, key: str) -> None:
        place = self._places.pop(key, None)
        if place is None:
            return
        own = self._of[place.principal]
        del own[key]
        if not own:
            del self._of[place.principal]
        if place.session is not None:
            place.session.end()

    def _drop(self, key: str) -> None:
        """End a session that nobody uses."""
        self._kept.drop(key)
        self._remove(key)

    def _make_room(self, principal: str, most: int) -> None:
        own = self._of.get(principal, OrderedDict[str, _Place]())
        if len(own) >= most:
            if (idle := _first_idle(own)) is None:
                raise ResourceExhausted(
                    f"{principal} has {most} sessions, and all are at work",
                    reason="TOO_MANY_SESSIONS",
                    metadata={"limit": str(most), "principal": principal},
                )
            self._drop(idle)
        if len(self._places) >= MOST and (idle := _first_idle(self._places)) is not None:
            self._drop(idle)

    def _touched(self, session: Session) -> None:
        place = self._places.get(session.key)
        if place is not None:
            self._used(session.key, place)
            self._kept.use(session.key)

    def _used(self, key: str, place: _Place) -> None:
        place.used_at = self._clock.steady()
        self._places.move_to_end(key)
        self._of[place.principal].move_to_end(key)

    def _watch(self) -> None:
        """Look for idle sessions when the first of them could be one."""
        first = next(iter(self._places.values()), None)
        if self._timer is None and first is not None:
            wait_s = first.used_at + self._limits().idle_s - self._clock.steady()
            self._timer = asyncio.get_running_loop().call_later(max(wait_s, LEAST_PAUSE_S), self._look)

    def _look(self) -> None:
        self._timer = None
        self.end_idle()
        self._watch()


def _first_idle(places: OrderedDict[str, _Place]) -> str | None:
    """Return the session that was idle for the longest time; None if all are at work."""
    return next((key for key, place in places.items() if place.session is None or not place.session.busy), None)
