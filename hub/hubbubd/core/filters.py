"""Filters of lists and watches, one per kind of record. Frozen, hashable: watches with equal filters share their work.

Each carries the Scope of its caller; records out of scope are neither listed nor announced, not even as deleted.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from hubbubd.core.access import EVERYTHING, Scope
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.inbox.request_states import PendingRequest, RequestKind, RequestState
from hubbubd.core.servers.catalog import CatalogKind, CatalogList
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.core.tasks import Task, TaskRole, TaskStatus

T_contra = TypeVar("T_contra", contravariant=True)


class Filter(Protocol[T_contra]):
    """A predicate over records of one type, with the scope of the caller that has set it."""

    @property
    def scope(self) -> Scope:
        """What the caller may see."""
        ...

    def is_in_scope(self, record: T_contra, /) -> bool:
        """Return whether the caller may see the record. No change of a record alters that."""
        ...

    def matches(self, record: T_contra, /) -> bool:
        """Return whether the record is in scope and meets every condition."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ServerFilter:
    """Servers by name; no names means all. The caller gets the full record only of servers in `full_scope`."""

    names: frozenset[str] = frozenset()
    scope: Scope = EVERYTHING
    full_scope: Scope = EVERYTHING

    def is_in_scope(self, record: ServerRecord, /) -> bool:
        return self.scope.has_server(record.name)

    def matches(self, record: ServerRecord, /) -> bool:
        """Return whether the server is in scope, and one of `names` unless these are empty."""
        return (not self.names or record.name in self.names) and self.is_in_scope(record)


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Pending requests that meet every condition given."""

    server: str = ""
    kinds: frozenset[RequestKind] = frozenset()
    states: frozenset[RequestState] = frozenset()
    call_id: str = ""
    scope: Scope = EVERYTHING

    def is_in_scope(self, record: PendingRequest, /) -> bool:
        return self.scope.has_request(record)

    def matches(self, record: PendingRequest, /) -> bool:
        """Return whether the request is in scope and meets every condition; an empty condition is none."""
        return (
            (not self.server or record.server == self.server)
            and (not self.kinds or record.kind in self.kinds)
            and (not self.states or record.state in self.states)
            and (not self.call_id or record.call_id == self.call_id)
            and self.is_in_scope(record)
        )


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Calls that meet every condition given."""

    server: str = ""
    states: frozenset[CallState] = frozenset()
    ids: frozenset[str] = frozenset()
    scope: Scope = EVERYTHING

    def is_in_scope(self, record: Call, /) -> bool:
        return self.scope.has_call(record)

    def matches(self, record: Call, /) -> bool:
        """Return whether the call is in scope and meets every condition; an empty condition is none."""
        return (
            (not self.server or record.server == self.server)
            and (not self.states or record.state in self.states)
            and (not self.ids or record.id in self.ids)
            and self.is_in_scope(record)
        )


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Tasks that meet every condition given."""

    server: str = ""
    role: TaskRole | None = None
    statuses: frozenset[TaskStatus] = frozenset()
    scope: Scope = EVERYTHING

    def is_in_scope(self, record: Task, /) -> bool:
        return self.scope.has_task(record)

    def matches(self, record: Task, /) -> bool:
        """Return whether the task is in scope and meets every condition; an empty condition is none."""
        return (
            (not self.server or record.server == self.server)
            and (self.role is None or record.role is self.role)
            and (not self.statuses or record.status in self.statuses)
            and self.is_in_scope(record)
        )


@dataclass(frozen=True, slots=True)
class CatalogFilter:
    """Catalog lists that meet every condition given. The caller gets fault details only in `full_scope`."""

    server: str = ""
    kinds: frozenset[CatalogKind] = frozenset()
    scope: Scope = EVERYTHING
    full_scope: Scope = EVERYTHING

    def is_in_scope(self, record: CatalogList, /) -> bool:
        return self.scope.has_server(record.server)

    def matches(self, record: CatalogList, /) -> bool:
        """Return whether the list is in scope and meets every condition; an empty condition is none."""
        return (
            (not self.server or record.server == self.server)
            and (not self.kinds or record.kind in self.kinds)
            and self.is_in_scope(record)
        )
