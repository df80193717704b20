"""All sessions of hosts over HTTP, of this process and of those before it.

    begin ──> a record in the store, durable ──> the host hears of its session
    request ──> the session as this process has it ── or taken up from its record ──> served
    at work ──> the record, every minute ──> no other member of a fleet ends it to make room
    subscription, level of log messages ──> the record ──> every member of a fleet that has the session, too
    DELETE, idle for long, its token revoked ──> the record is deleted ──> no process takes it up again

docs/design/inbox.md says why sessions are stored, and not signed.
"""

import asyncio
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from hubbubd import payload
from hubbubd.core.access import Principal
from hubbubd.core.hosts.host_sessions import HostSession, record_id
from hubbubd.downstream.endpoint import McpEndpoint
from hubbubd.downstream.hosts.host import McpHost
from hubbubd.downstream.hosts.introductions import kept
from hubbubd.downstream.hosts.limits import HostLimits
from hubbubd.downstream.sessions.session import EndpointSession
from hubbubd.errors import ResourceExhausted
from hubbubd.runtime.hub import Hub
from hubbubd.timing.clock import Clock

LEAST_PAUSE_S: Final = 1.0
"""The least number of seconds between two looks for idle sessions."""

MOST: Final = 10_000
"""Sessions of all principals; beyond it the one that was idle for the longest time ends."""

NOTED_S: Final = 60.0
"""Seconds between two notes of one process in a session's record that it uses the session."""

BUSY_S: Final = 30.0
"""Seconds between two looks for sessions at work, whose records are to say so to the other members."""

BUSY_TOGETHER: Final = 500
"""How many of them one turn of the event loop looks after."""

ELSEWHERE_S: Final = 2 * 60.0
"""Seconds for which a session may be in use at another member before this one hears of it, whether it has it, too: more
than NOTED_S and BUSY_S."""


@dataclass(slots=True, kw_only=True)
class _SessionEntry:
    """A session, by whom it is, and when it was used last, on the steady clock; None where it was not taken up yet.

    `noted_at` is when this process has last noted in the record that it uses the session, on the steady clock, and
    `noted` what it wrote. `elsewhere_at` is when it has last heard that another member does.
    """

    principal: str
    used_at: float
    session: EndpointSession | None = None
    noted_at: float = -math.inf
    noted: float = -math.inf
    elsewhere_at: float = -math.inf


class EndpointSessions:
    """All sessions of all endpoints. Each step costs the same however many there are."""

    def __init__(self, hub: Hub, limits: Callable[[], HostLimits] = HostLimits) -> None:
        """`limits` returns the current ones; a session keeps those that it began with."""
        self._hub = hub
        self._clock: Clock = hub.clock
        self._kept = hub.host_sessions
        self._limits = limits
        self._places = OrderedDict[str, _SessionEntry]()
        """By the id of the record; the one that was idle for the longest time is first."""
        self._of: dict[str, OrderedDict[str, _SessionEntry]] = {}
        """The same by principal."""
        self._timer: asyncio.TimerHandle | None = None
        self._busy_timer: asyncio.Handle | None = None
        self._closed = False
        for record in self._kept.all():
            place = self._add(record.id, record.principal)
            if self._in_fleet:
                place.elsewhere_at = self._clock.steady()
        self._kept.follow(self._followed)

    def __iter__(self) -> Iterator[EndpointSession]:
        """Iterate over the sessions that this process has taken up."""
        return (place.session for place in self._places.values() if place.session is not None)

    def __len__(self) -> int:
        """Return how many sessions there are, those included that nobody has used since the start."""
        return len(self._places)

    async def begin(self, host: McpHost, endpoint: McpEndpoint) -> EndpointSession:
        """Return a new session; it is durable. Raises ResourceExhausted."""
        limits = self._limits()
        self._make_room(host.principal.name, limits.sessions_per_principal)
        session = self._made(secrets.token_urlsafe(24), host, endpoint)
        place = self._add(session.key, host.principal.name)
        place.session, now = session, self._noted(place)
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

    async def find(self, id_: str, principal: Principal, endpoint: McpEndpoint) -> EndpointSession | None:
        """Return a session, if it is of this principal and endpoint. Raises Unavailable."""
        key = record_id(id_)
        if key not in self._places and await self._hub.find_host_session(key) is None:
            return None
        place = self._places.get(key)
        if place is None or place.principal != principal.name:
            return None
        if place.session is not None and place.session.endpoint is not endpoint and place.session.endpoint.is_removed:
            place.session.end()  # its endpoint is there again, as after a restart of the hub
            place.session = None
        session = place.session or self._taken_up(id_, place, principal, endpoint)
        if session is None or session.endpoint is not endpoint:
            return None
        if self._hub.ownership.me and self._is_due(place):
            # In a fleet the record says first that the session is used here, for members that make room.
            self._used(session.key, place)
            await self._kept.begin_use(session.key, self._noted(place))
        if session.ended:
            return None
        session.act_for(principal)
        session.touch()
        return session

    async def end(self, session: EndpointSession) -> None:
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
            elif self._in_fleet and place.used_at > now - idle_s - ELSEWHERE_S:
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
        for timer in (self._timer, self._busy_timer):
            if timer is not None:
                timer.cancel()

    @property
    def _in_fleet(self) -> bool:
        return bool(self._hub.ownership.me)

    def _made(self, id_: str, host: McpHost, endpoint: McpEndpoint) -> EndpointSession:
        session = EndpointSession(host, endpoint, self._clock.steady, self._limits(), used=self._touched, id_=id_)
        session.notifications.keep = partial(self._kept.change, session.key)
        return session

    def _taken_up(
        self, id_: str, place: _SessionEntry, principal: Principal, endpoint: McpEndpoint
    ) -> EndpointSession | None:
        """Return a session of an earlier process, or of another member, as its record says; None if it is elsewhere."""
        record = self._kept.get(record_id(id_))
        if record is None or record.endpoint != endpoint.view.name:
            return None
        info, capabilities = kept(payload.loads(record.info), payload.loads(record.capabilities))
        host = McpHost(principal=principal, revision=record.revision, info=info, capabilities=capabilities)
        place.session = self._made(id_, host, endpoint)
        place.session.notifications.resume(record.level, record.resources)
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
            if after.used_at != place.noted:
                place.elsewhere_at = self._clock.steady()
            self._used(after.id, place)
        if before is not None and place.session is not None:
            place.session.notifications.follow(before, after)

    def _add(self, key: str, principal: str) -> _SessionEntry:
        place = self._places[key] = _SessionEntry(principal=principal, used_at=self._clock.steady())
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
        """End a session that nobody uses, as far as is known here."""
        self._kept.drop(key, unless_used=self._in_fleet)
        self._remove(key)

    def _make_room(self, principal: str, most: int) -> None:
        own = self._of.get(principal, OrderedDict[str, _SessionEntry]())
        for places, limit, whose in ((own, most, principal), (self._places, MOST, "the hub")):
            if len(places) < limit:
                continue
            if (idle := self._first_idle(places)) is None:
                at_work_here = all(place.session is not None and place.session.busy for place in places.values())
                raise ResourceExhausted(
                    f"{whose} has {limit} sessions, and all are at work",
                    reason="TOO_MANY_SESSIONS",
                    metadata={"limit": str(limit), "principal": principal},
                    retry_after_s=None if at_work_here else ELSEWHERE_S,
                )
            self._drop(idle)

    def _first_idle(self, places: OrderedDict[str, _SessionEntry]) -> str | None:
        """Return the session that was idle for the longest time; None if all are at work, or may be elsewhere."""
        elsewhere = self._clock.steady() - ELSEWHERE_S
        for key, place in places.items():
            if place.elsewhere_at <= elsewhere and not (place.session is not None and place.session.busy):
                return key
        return None

    def _touched(self, session: EndpointSession) -> None:
        place = self._places.get(session.key)
        if place is None:
            return
        place.used_at = session.used_at
        self._places.move_to_end(session.key)
        self._of[place.principal].move_to_end(session.key)
        if place.used_at - place.noted_at >= NOTED_S:
            self._kept.use(session.key, self._noted(place))

    def _is_due(self, place: _SessionEntry) -> bool:
        return self._clock.steady() - place.noted_at >= NOTED_S

    def _noted(self, place: _SessionEntry) -> float:
        """Return the time that this process notes in a session's record now."""
        place.noted_at, place.noted = self._clock.steady(), self._clock.now()
        return place.noted

    def _used(self, key: str, place: _SessionEntry) -> None:
        place.used_at = self._clock.steady()
        self._places.move_to_end(key)
        self._of[place.principal].move_to_end(key)

    def _watch(self) -> None:
        """Look for idle sessions when the first of them could be one."""
        first = next(iter(self._places.values()), None)
        if self._timer is None and first is not None:
            wait_s = first.used_at + self._limits().idle_s - self._clock.steady()
            self._timer = asyncio.get_running_loop().call_later(max(wait_s, LEAST_PAUSE_S), self._look)
        if self._busy_timer is None and first is not None and self._in_fleet:
            self._busy_timer = asyncio.get_running_loop().call_later(BUSY_S, self._look_for_busy)

    def _look(self) -> None:
        self._timer = None
        self.end_idle()
        self._watch()

    def _look_for_busy(self) -> None:
        """Have the other members hear of the sessions that are at work here."""
        self._say_busy([session for session in self if session.busy])

    def _say_busy(self, sessions: Sequence[EndpointSession]) -> None:
        for session in sessions[:BUSY_TOGETHER]:
            if session.busy:
                session.touch()
        if rest := sessions[BUSY_TOGETHER:]:
            self._busy_timer = asyncio.get_running_loop().call_soon(self._say_busy, rest)
            return
        self._busy_timer = None
        self._watch()
