"""Which records a list or a watch is about. Frozen and hashable: equal filters share the work of a watch.

Each has the scope of whoever asks: what is out of it is as if it were not there, and never told of.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from hubbubd.core.access import EVERYTHING, Scope
from hubbubd.core.calls import Call, CallState
from hubbubd.core.catalog import CatalogList, Kind
from hubbubd.core.inbox import PendingRequest, RequestKind, RequestState
from hubbubd.core.server import ServerRecord
from hubbubd.core.tasks import Task, TaskRole, TaskStatus

T_contra = TypeVar("T_contra", contravariant=True)


class Filter(Protocol[T_contra]):
    """What every filter does."""

    @property
    def scope(self) -> Scope:
        """What its watcher may know of."""
        ...

    def reaches(self, record: T_contra, /) -> bool:
        """Whether the record is within the scope, which no change of a record alters."""
        ...

    def matches(self, record: T_contra, /) -> bool:
        """Whether the record is in."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ServerFilter:
    """Servers by name; none given means all. Of those that are `seen` the watcher is shown more."""

    names: frozenset[str] = frozenset()
    scope: Scope = EVERYTHING
    seen: Scope = EVERYTHING

    def reaches(self, record: ServerRecord, /) -> bool:
        """Whether the server is within the scope."""
        return self.scope.has_server(record.name)

    def matches(self, record: ServerRecord, /) -> bool:
        """Whether the server is in."""
        return (not self.names or record.name in self.names) and self.reaches(record)


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Pending requests for which every condition given holds."""

    server: str = ""
    kinds: frozenset[RequestKind] = frozenset()
    states: frozenset[RequestState] = frozenset()
    call_id: str = ""
    scope: Scope = EVERYTHING

    def reaches(self, record: PendingRequest, /) -> bool:
        """Whether the request is within the scope."""
        return self.scope.has_request(record)

    def matches(self, record: PendingRequest, /) -> bool:
        """Whether the request is in."""
        return (
            (not self.server or record.server == self.server)
            and (not self.kinds or record.kind in self.kinds)
            and (not self.states or record.state in self.states)
            and (not self.call_id or record.call_id == self.call_id)
            and self.reaches(record)
        )


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Calls for which every condition given holds."""

    server: str = ""
    states: frozenset[CallState] = frozenset()
    ids: frozenset[str] = frozenset()
    scope: Scope = EVERYTHING

    def reaches(self, record: Call, /) -> bool:
        """Whether the call is within the scope."""
        return self.scope.has_call(record)

    def matches(self, record: Call, /) -> bool:
        """Whether the call is in."""
        return (
            (not self.server or record.server == self.server)
            and (not self.states or record.state in self.states)
            and (not self.ids or record.id in self.ids)
            and self.reaches(record)
        )


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Tasks for which every condition given holds."""

    server: str = ""
    role: TaskRole | None = None
    statuses: frozenset[TaskStatus] = frozenset()
    scope: Scope = EVERYTHING

    def reaches(self, record: Task, /) -> bool:
        """Whether the task is within the scope."""
        return self.scope.has_task(record)

    def matches(self, record: Task, /) -> bool:
        """Whether the task is in."""
        return (
            (not self.server or record.server == self.server)
            and (self.role is None or record.role is self.role)
            and (not self.statuses or record.status in self.statuses)
            and self.reaches(record)
        )


@dataclass(frozen=True, slots=True)
class CatalogFilter:
    """Lists of the catalog for which every condition given holds."""

    server: str = ""
    kinds: frozenset[Kind] = frozenset()
    scope: Scope = EVERYTHING
    seen: Scope = EVERYTHING

    def reaches(self, record: CatalogList, /) -> bool:
        """Whether the list is within the scope."""
        return self.scope.has_server(record.server)

    def matches(self, record: CatalogList, /) -> bool:
        """Whether the list is in."""
        return (
            (not self.server or record.server == self.server)
            and (not self.kinds or record.kind in self.kinds)
            and self.reaches(record)
        )
