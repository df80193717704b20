"""Who uses the hub as an MCP server: the hosts that are connected, and the requests that they have open.

A host with a session is there until that ends. One of a revision without sessions is there while it has a request open,
and for QUIET_S after that.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

QUIET_S: Final = 600.0
"""Seconds for which a host without a session counts as connected after its last request."""

LOST_S: Final = 60.0
"""Seconds of silence after which a host has probably left that once had a stream of its own, and has none now."""

SILENT_S: Final = 300.0
"""Seconds of silence after which a host has probably left that never had a stream of its own."""

LISTEN: Final = "subscriptions/listen"
"""The request that is a host's own stream while it is open (2026-07-28)."""

MAX_QUIET: Final = 1000
"""The most hosts without a session that are remembered; the one that was quiet for the longest time is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIdentity:
    """What is known of a host. All but `principal` and `endpoint` comes from the host itself."""

    principal: str
    name: str
    version: str
    revision: str
    via: str
    """How its messages come: `http` or `stdio`."""
    endpoint: str
    """The endpoint that it uses: `p/PROFILE` or `s/SERVER`."""
    process: str = ""
    """The process of the host's program, for a host without a session; not for people."""


@dataclass(slots=True, eq=False, kw_only=True)
class OpenRequest:
    """A request of a host; `call_id` is set once it is a call."""

    method: str
    created_at: float
    call_id: str = ""


@dataclass(slots=True, eq=False, kw_only=True)
class ConnectedHost:
    """A host. Times are seconds since the epoch."""

    id: str
    identity: HostIdentity
    created_at: float
    last_used_at: float
    has_session: bool
    is_listening: Callable[[], bool] = lambda: False
    """Returns whether a stream of the host's own is open: a bridge, or one that carries notifications."""
    why_not_asked: Callable[[], Mapping[str, str]] = dict[str, str]
    """Returns, by kind of question, why questions of servers do not go to this host; "" if they do."""
    had_stream: bool = False
    """Whether a stream of its own was ever seen open."""
    requests: dict[OpenRequest, None] = field(default_factory=dict[OpenRequest, None])
    """The open requests, oldest first."""

    @property
    def has_open_stream(self) -> bool:
        """Whether the host has a stream of its own open; if so, this also sets `had_stream`."""
        is_open = self.is_listening() or any(each.method == LISTEN for each in self.requests)
        self.had_stream = self.had_stream or is_open
        return is_open

    def has_probably_left(self, now: float) -> bool:
        """Return whether the host has probably left: it has nothing open, and has sent nothing for a while.

        That is LOST_S for a host that once had a stream of its own, else SILENT_S.
        """
        if self.has_open_stream or self.requests:
            return False
        return now - self.last_used_at > (LOST_S if self.had_stream else SILENT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFilter:
    """Hosts that meet every condition that is set."""

    principals: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()
    call_ids: frozenset[str] = frozenset()
    """Only those that have a request open for one of these calls."""

    def matches(self, host: ConnectedHost) -> bool:
        """Return whether a host meets every condition."""
        return (
            (not self.principals or host.identity.principal in self.principals)
            and (not self.ids or host.id in self.ids)
            and (not self.call_ids or any(each.call_id in self.call_ids for each in host.requests))
        )


class ConnectedHosts:
    """All hosts that are connected. `now` returns seconds since the epoch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._with_session: dict[str, ConnectedHost] = {}
        self._without_session = OrderedDict[HostIdentity, ConnectedHost]()
        """By identity; the host that was quiet for the longest time is first."""

    def all(self) -> list[ConnectedHost]:
        """Return the hosts that are connected, in no order.

        Hosts without a session are left out QUIET_S after their last request, unless they have a stream or request
        open.
        """
        quiet_since = self._now() - QUIET_S
        active = [
            each
            for each in self._without_session.values()
            if each.requests or each.last_used_at > quiet_since or each.has_open_stream
        ]
        return [*self._with_session.values(), *active]

    def add(self, identity: HostIdentity) -> ConnectedHost:
        """Add a host whose session has begun, and return it."""
        host = self._make_host(identity, has_session=True)
        self._with_session[host.id] = host
        return host

    def remove(self, host: ConnectedHost) -> None:
        """Remove a host whose session has ended."""
        self._with_session.pop(host.id, None)

    def find_or_add(self, identity: HostIdentity) -> ConnectedHost:
        """Return the host without a session that has this identity; add the host if it is new.

        Beyond MAX_QUIET hosts, the one that was quiet for the longest time is forgotten.
        """
        if (host := self._without_session.get(identity)) is not None:
            self._without_session.move_to_end(identity)
            return host
        host = self._without_session[identity] = self._make_host(identity, has_session=False)
        if len(self._without_session) > MAX_QUIET:
            self._without_session.popitem(last=False)
        return host

    @contextmanager
    def track_request(self, host: ConnectedHost, method: str) -> Generator[OpenRequest]:
        """Yield a request of a host that counts as open during the block; note the host's use before and after."""
        request = OpenRequest(method=method, created_at=self._now())
        host.requests[request] = None
        host.last_used_at = request.created_at
        try:
            yield request
        finally:
            host.had_stream = host.had_stream or host.has_open_stream  # this request may be the stream
            del host.requests[request]
            host.last_used_at = self._now()  # the host is quiet only from the end of its request on

    def _make_host(self, identity: HostIdentity, *, has_session: bool) -> ConnectedHost:
        """Return a new host, with a random id, that was used just now."""
        now, id_ = self._now(), f"host_{secrets.token_hex(8)}"
        return ConnectedHost(id=id_, identity=identity, created_at=now, last_used_at=now, has_session=has_session)
