"""All sessions of hosts over HTTP, of this process and of those before it.

    begin ──> a record in the store, durable ──> the host gets the id of its session
    request ──> the session as this process has it ── or restored from its record ──> served
    at work ──> the record, every minute ──> no other member of a fleet ends it to make room
    subscription, level of log messages ──> the record ──> every member of a fleet that has the session, too
    DELETE, idle for long, its token revoked ──> the record is deleted ──> no process restores it

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
from weakref import WeakValueDictionary

from hubbubd import payload
from hubbubd.core.access import Principal
from hubbubd.core.hosts.host_sessions import HostSession, record_id
from hubbubd.downstream.endpoint import McpEndpoint
from hubbubd.downstream.hosts.host import McpHost
from hubbubd.downstream.hosts.introductions import select_known_parts
from hubbubd.downstream.hosts.limits import HostLimits
from hubbubd.downstream.sessions.session import EndpointSession
from hubbubd.errors import ResourceExhausted
from hubbubd.runtime.hub import Hub
from hubbubd.timing.clock import Clock

LEAST_PAUSE_S: Final = 1.0
"""The least number of seconds between two searches for idle sessions."""

MAX_SESSIONS: Final = 10_000
"""Sessions of all principals; beyond it the one that was idle for the longest time ends."""

NOTE_EVERY_S: Final = 60.0
"""Seconds between two notes of one process in a session's record that it uses the session."""

BUSY_EVERY_S: Final = 30.0
"""Seconds between two notes in the records of sessions at work that they are in use, for the other members."""

BUSY_AT_ONCE: Final = 500
"""How many busy sessions one turn of the event loop touches."""

ELSEWHERE_S: Final = 2 * 60.0
"""Seconds after another member's last note of use, after which a session counts as not in use there: more than
NOTE_EVERY_S and BUSY_EVERY_S."""


@dataclass(slots=True, kw_only=True)
class _SessionEntry:
    """A session as far as this process knows it. Times are of the steady clock, but for `noted`."""

    principal: str
    used_at: float
    session: EndpointSession | None = None
    """None for one of an earlier process, or of another member, until it is used here."""
    noted_at: float = -math.inf
    """When this process has last noted in the record that it uses the session."""
    noted: float = -math.inf
    """The time of use that this process has last noted in the record, in epoch seconds."""
    used_elsewhere_at: float = -math.inf
    """When this process has last learned from the record that another member uses the session."""


class EndpointSessions:
    """All sessions of all endpoints. The cost of a step does not depend on the number of sessions."""

    def __init__(self, hub: Hub, limits: Callable[[], HostLimits] = HostLimits) -> None:
        """`limits` returns the current limits; a session keeps the limits with which it began."""
        self._hub = hub
        self._clock: Clock = hub.clock
        self._records = hub.host_sessions
        self._limits = limits
        self._entries = OrderedDict[str, _SessionEntry]()
        """By the id of the record, the one that was idle for the longest time first."""
        self._by_host_id = WeakValueDictionary[str, EndpointSession]()
        """The sessions that this process has, by the id that the host knows: so the hash of an id is made once."""
        self._by_principal: dict[str, OrderedDict[str, _SessionEntry]] = {}
        """By principal and record id, the entries of `_entries` in the same order."""
        self._timer: asyncio.TimerHandle | None = None
        self._busy_timer: asyncio.Handle | None = None
        self._closed = False
        for record in self._records.all():
            entry = self._add(record.id, record.principal)
            if self._in_fleet:
                entry.used_elsewhere_at = self._clock.steady()
        self._records.follow(self._on_record_change)

    def __iter__(self) -> Iterator[EndpointSession]:
        """Iterate over the sessions that this process has started or restored."""
        return (entry.session for entry in self._entries.values() if entry.session is not None)

    def __len__(self) -> int:
        """Return how many sessions there are, with those that were not used since the start of the process."""
        return len(self._entries)

    async def begin(self, host: McpHost, endpoint: McpEndpoint) -> EndpointSession:
        """Start a session, make it durable, and return it. Raises ResourceExhausted.

        At a limit the session that was idle for the longest time ends for it.
        """
        limits = self._limits()
        self._ensure_capacity(host.principal.name, limits.sessions_per_principal)
        session = self._make_session(secrets.token_urlsafe(24), host, endpoint)
        entry = self._add(session.key, host.principal.name)
        entry.session, now = session, self._stamp_use(entry)
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
        await self._records.begin(record)
        return session

    async def find(self, id_: str, principal: Principal, endpoint: McpEndpoint) -> EndpointSession | None:
        """Return the session with an id, restored if need be, and note its use. Raises Unavailable.

        None if there is no such session, or if it is of another principal or endpoint.
        """
        session_here = self._by_host_id.get(id_)
        key = record_id(id_) if session_here is None else session_here.key
        if key not in self._entries and await self._hub.find_host_session(key) is None:
            return None
        entry = self._entries.get(key)
        if entry is None or entry.principal != principal.name:
            return None
        if entry.session is not None and entry.session.endpoint is not endpoint and entry.session.endpoint.is_removed:
            entry.session.end()  # its endpoint was made again: it is restored there, as after a restart
            entry.session = None
        session = entry.session or self._restore_session(id_, entry, principal, endpoint)
        if session is None or session.endpoint is not endpoint:
            return None
        if self._hub.ownership.me and self._clock.steady() - entry.noted_at >= NOTE_EVERY_S:
            # In a fleet the use is noted first, so that no other member ends the session to make room.
            self._move_to_end(session.key, entry)
            await self._records.note_use_durably(session.key, self._stamp_use(entry))
        if session.ended:
            return None
        session.set_principal(principal)
        session.touch()
        return session

    async def end(self, session: EndpointSession) -> None:
        """End a session and delete its record. Raises Unavailable if the record stays; the session then goes on."""
        await self._records.end(session.key)
        self._remove(session.key)

    def end_idle(self) -> None:
        """End the sessions that were idle for longer than the limits allow, and delete their records.

        A session at work counts as used now. In a fleet a session ends later, as another member may use it.
        """
        idle_s, now = self._limits().idle_s, self._clock.steady()
        while (key := next(iter(self._entries), None)) is not None and self._entries[key].used_at <= now - idle_s:
            entry = self._entries[key]
            if entry.session is not None and entry.session.is_busy:
                entry.session.touch()
            elif (
                self._in_fleet and entry.used_at > now - idle_s - ELSEWHERE_S
            ):  # another member's use may not be known yet
                break
            else:
                self._drop(key)

    def close(self) -> None:
        """End all that is open; the sessions stay for the next process."""
        self._closed = True
        for session in list(self):
            session.end()
        self._entries.clear()
        self._by_principal.clear()
        for timer in (self._timer, self._busy_timer):
            if timer is not None:
                timer.cancel()

    @property
    def _in_fleet(self) -> bool:
        """Whether this hub is a member of a fleet."""
        return bool(self._hub.ownership.me)

    def _make_session(self, id_: str, host: McpHost, endpoint: McpEndpoint) -> EndpointSession:
        """Make a session that stores changes of its subscriptions and level in its record; return it."""
        session = self._by_host_id[id_] = EndpointSession(
            host, endpoint, self._clock.steady, self._limits(), on_use=self._on_touch, id_=id_
        )
        session.notifications.store_change = partial(self._records.change, session.key)
        return session

    def _restore_session(
        self, id_: str, entry: _SessionEntry, principal: Principal, endpoint: McpEndpoint
    ) -> EndpointSession | None:
        """Restore a session from its record, and return it; None without a record, or if it is another endpoint's."""
        record = self._records.get(record_id(id_))
        if record is None or record.endpoint != endpoint.view.name:
            return None
        info, capabilities = select_known_parts(payload.loads(record.info), payload.loads(record.capabilities))
        host = McpHost(principal=principal, revision=record.revision, info=info, capabilities=capabilities)
        entry.session = self._make_session(id_, host, endpoint)
        host.read_from.update(record.read_from)
        entry.session.notifications.resume(record.level, record.resources)
        return entry.session

    def _on_record_change(self, before: HostSession | None, after: HostSession | None) -> None:
        """Apply a change of a session's record, which another member may have made, to the session here."""
        if self._closed:
            return
        if after is None:
            if before is not None:
                self._remove(before.id)
            return
        entry = self._entries.get(after.id) or self._add(after.id, after.principal)
        if before is None or before.used_at != after.used_at:
            if after.used_at != entry.noted:  # else the note is this process's own
                entry.used_elsewhere_at = self._clock.steady()
            self._move_to_end(after.id, entry)
        if before is not None and entry.session is not None:
            entry.session.host.read_from.update(after.read_from)
            entry.session.notifications.apply_record_change(before, after)

    def _add(self, key: str, principal: str) -> _SessionEntry:
        """Add a session to the table, as used now."""
        entry = self._entries[key] = _SessionEntry(principal=principal, used_at=self._clock.steady())
        self._by_principal.setdefault(principal, OrderedDict())[key] = entry
        self._start_timers()
        return entry

    def _remove(self, key: str) -> None:
        """Remove a session from the table, and end it here."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        of_principal = self._by_principal[entry.principal]
        del of_principal[key]
        if not of_principal:
            del self._by_principal[entry.principal]
        if entry.session is not None:
            entry.session.end()

    def _drop(self, key: str) -> None:
        """End a session that no host uses, as far as this member knows, and delete its record."""
        self._records.drop(key, unless_used=self._in_fleet)
        self._remove(key)

    def _ensure_capacity(self, principal: str, limit_of_principal: int) -> None:
        """Make room for one more session: at a limit, end the one that was idle for the longest time.

        Raises ResourceExhausted if none is idle.
        """
        of_principal = self._by_principal.get(principal, OrderedDict[str, _SessionEntry]())
        for entries, limit, owner in (
            (of_principal, limit_of_principal, principal),
            (self._entries, MAX_SESSIONS, "the hub"),
        ):
            if len(entries) < limit:
                continue
            if (idle := self._find_idle_key(entries)) is None:
                at_work_here = all(entry.session is not None and entry.session.is_busy for entry in entries.values())
                raise ResourceExhausted(
                    f"{owner} has {limit} sessions, and all are at work",
                    reason="TOO_MANY_SESSIONS",
                    metadata={"limit": str(limit), "principal": principal},
                    retry_after_s=None if at_work_here else ELSEWHERE_S,
                )
            self._drop(idle)

    def _find_idle_key(self, entries: OrderedDict[str, _SessionEntry]) -> str | None:
        """Return the key of the session that was idle the longest; None if all are at work, or may be at a member."""
        in_use_since = self._clock.steady() - ELSEWHERE_S
        for key, entry in entries.items():
            if entry.used_elsewhere_at <= in_use_since and not (entry.session is not None and entry.session.is_busy):
                return key
        return None

    def _on_touch(self, session: EndpointSession) -> None:
        """Note the use of a session; in its record once per NOTE_EVERY_S at most."""
        entry = self._entries.get(session.key)
        if entry is None:
            return
        entry.used_at = session.used_at
        self._entries.move_to_end(session.key)
        self._by_principal[entry.principal].move_to_end(session.key)
        if entry.used_at - entry.noted_at >= NOTE_EVERY_S:
            self._records.note_use(session.key, self._stamp_use(entry))

    def _stamp_use(self, entry: _SessionEntry) -> float:
        """Note in the entry that its record gets a note of use now; return the time for it, in epoch seconds."""
        entry.noted_at, entry.noted = self._clock.steady(), self._clock.now()
        return entry.noted

    def _move_to_end(self, key: str, entry: _SessionEntry) -> None:
        """Note that a session is used now: move its entry to the end, behind those that were idle for longer."""
        entry.used_at = self._clock.steady()
        self._entries.move_to_end(key)
        self._by_principal[entry.principal].move_to_end(key)

    def _start_timers(self) -> None:
        """Set the timers for idle sessions, and in a fleet for busy ones, unless they run."""
        first = next(iter(self._entries.values()), None)
        if self._timer is None and first is not None:
            wait_s = first.used_at + self._limits().idle_s - self._clock.steady()
            self._timer = asyncio.get_running_loop().call_later(max(wait_s, LEAST_PAUSE_S), self._end_idle_in_time)
        if self._busy_timer is None and first is not None and self._in_fleet:
            self._busy_timer = asyncio.get_running_loop().call_later(BUSY_EVERY_S, self._report_busy)

    def _end_idle_in_time(self) -> None:
        """End idle sessions, and set the timers again."""
        self._timer = None
        self.end_idle()
        self._start_timers()

    def _report_busy(self) -> None:
        """Touch all busy sessions, so that their records show the other members that they are in use."""
        self._touch_busy([session for session in self if session.is_busy])

    def _touch_busy(self, sessions: Sequence[EndpointSession]) -> None:
        """Touch busy sessions, BUSY_AT_ONCE per turn of the event loop; then set the timers again."""
        for session in sessions[:BUSY_AT_ONCE]:
            if session.is_busy:
                session.touch()
        if remaining := sessions[BUSY_AT_ONCE:]:
            self._busy_timer = asyncio.get_running_loop().call_soon(self._touch_busy, remaining)
            return
        self._busy_timer = None
        self._start_timers()
