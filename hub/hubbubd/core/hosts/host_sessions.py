"""The session of a host over HTTP, as a record: it outlives the process that began it."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from hubbubd import bounds

MAX_WATCHED: Final = 100
"""The most resources of which one host gets notices."""

MAX_WATCHED_BYTES: Final = 16 * 1024
"""The bytes of their URIs together: there are many sessions, and each is in memory and in the store."""

MAX_READ_FROM: Final = 32
"""The most servers of which it is remembered that a session has read pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSession:
    """A session. Times are seconds since the epoch.

    `info` and `capabilities` are the parts of the host's description of itself that the hub reads, as JSON. `id` is the
    digest of the session id that the host sends. `credential` began the session. `endpoint` is `p/PROFILE` or
    `s/SERVER`. The host wants log messages from `level` on, and notices of `resources`, by the URIs that it knows.
    """

    id: str
    principal: str
    credential: str
    endpoint: str
    revision: str
    info: bytes
    capabilities: bytes
    begun_at: bounds.Moment
    used_at: bounds.Moment
    level: str | None = None
    resources: tuple[str, ...] = ()
    read_from: tuple[str, ...] = ()
    """Servers whose pages the host has read, the latest last."""


def record_id(session_id: str) -> str:
    """Return the id of a session's record: the digest of the session id that the host sends."""
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()


def with_level(level: str, session: HostSession | None) -> HostSession | None:
    """Return the session as one that wants log messages of this level and above; None (it has ended) stays None."""
    return session if session is None or session.level == level else replace(session, level=level)


def with_resource(uri: str, session: HostSession | None) -> HostSession | None:
    """Return a session that watches a resource as well; unchanged if it may not watch more. None (ended) stays None."""
    if session is None or uri in session.resources or not can_watch_more(session.resources, uri):
        return session
    return replace(session, resources=(*session.resources, uri))


def with_page_of(server: str, session: HostSession | None) -> HostSession | None:
    """Return the session with a note that its host has read a page of this server; None (ended) stays None.

    The note helps to tell which server a page means that calls a tool. Only the last MAX_READ_FROM servers are noted.
    """
    if session is None or server in session.read_from:
        return session
    return replace(session, read_from=(*session.read_from, server)[-MAX_READ_FROM:])


def can_watch_more(watched: Collection[str], uri: str) -> bool:
    """Return whether a host that watches some resources may watch one more."""
    size = sum(len(each.encode("utf-8", "surrogatepass")) for each in (*watched, uri))
    return len(watched) < MAX_WATCHED and size <= MAX_WATCHED_BYTES


def without_resource(uri: str, session: HostSession | None) -> HostSession | None:
    """Return a session that watches a resource no more; None (the session has ended) stays None."""
    if session is None or uri not in session.resources:
        return session
    return replace(session, resources=tuple(each for each in session.resources if each != uri))


def end_unless_used(last_used_at: float, session: HostSession | None) -> HostSession | None:
    """Return None, which ends the session, if its last use was at `last_used_at`; a session used since goes on."""
    return session if session is not None and session.used_at != last_used_at else None


def with_last_use(now: float, session: HostSession | None) -> HostSession | None:
    """Return the session with `now` as the time of its last use; None (the session has ended) stays None."""
    return session if session is None or session.used_at == now else replace(session, used_at=now)
