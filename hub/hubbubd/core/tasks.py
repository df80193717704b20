"""Tasks in both roles: states, records, and their form on the wire (MCP 2025-11-25, basic/utilities/tasks).

    working <──> input_required       either ──> completed | failed | cancelled, and there it stays

A receiver task is held by the hub for a server. It stays `working` while a person is asked: `input_required` would
mean that the server must provide something.

A client task is held by a server for the hub: a call that the hub requested as a task (2025-11-25), or that the server
turned into one (2026-07-28, tasks extension, SEP-2663). Its record mirrors what the server reports.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, cast

from hubbubd import bounds
from hubbubd.bounds import Millis, Moment
from hubbubd.core.servers.connection_states import IllegalTransition
from hubbubd.telemetry.trace import Trace

EXTENSION = "io.modelcontextprotocol/tasks"
"""The tasks extension (2026-07-28, SEP-2663)."""

RELATED_TASK = "io.modelcontextprotocol/related-task"

TTL_FLOOR_S = 300.0
"""The shortest ttl granted, as a server may ask for one minute and for a person. The receiver may raise a ttl."""

TTL_CEILING_S = 7 * 86400.0
"""Seconds of the longest life of a task, whatever ttl its server asks for: a week."""

GRACE_S = 60.0
"""Seconds for which an ended task can still be fetched, whatever its ttl."""

POLL_INTERVAL_MS = 1000
"""Milliseconds that servers are asked to leave between two looks at a task."""

SHORTEST_POLL_S = 0.1
LONGEST_POLL_S = 30.0
"""Bounds of the poll interval that a server asks for, in seconds."""

LONGEST_ID = 128
"""Characters of the id that a server gives its task; one with a longer id is refused."""


class TaskRole(StrEnum):
    """Who holds the task: the hub (receiver) or the server (client)."""

    RECEIVER = "receiver"
    CLIENT = "client"


class TaskStatus(StrEnum):
    """Status of a task; `TRANSITIONS` has what may follow."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether the status is final."""
        return self in ENDED


ENDED = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED})

TRANSITIONS: Mapping[TaskStatus, frozenset[TaskStatus]] = MappingProxyType(
    {
        TaskStatus.WORKING: frozenset({TaskStatus.INPUT_REQUIRED, *ENDED}),
        TaskStatus.INPUT_REQUIRED: frozenset({TaskStatus.WORKING, *ENDED}),
        TaskStatus.COMPLETED: frozenset[TaskStatus](),
        TaskStatus.FAILED: frozenset[TaskStatus](),
        TaskStatus.CANCELLED: frozenset[TaskStatus](),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task's record. Times are seconds since the epoch; payloads are JSON bytes.

    `result` is the MCP result, `error` the JSON-RPC error object. `fingerprint` identifies the server, so that another
    one under its name gets nothing. `remote_id` is a client task's id at its server; servers may use equal ones.
    `questions` pairs the keys of its inputRequests (tasks extension) with the ids of the pending requests made of them.
    `principal` made the call that became the task, or that caused the server's request. `trace` is the place of its
    span. `defect` names what could not be loaded from the store.
    """

    id: str
    server: str
    fingerprint: str
    role: TaskRole
    method: str
    created_at: Moment
    last_updated_at: Moment
    ttl_ms: Millis | None = None
    status: TaskStatus = TaskStatus.WORKING
    status_message: str | None = None
    poll_interval_ms: Millis | None = POLL_INTERVAL_MS
    call_id: str | None = None
    pending_ids: tuple[str, ...] = ()
    result: bytes | None = None
    error: bytes | None = None
    remote_id: str | None = None
    questions: tuple[tuple[str, str], ...] = ()
    principal: str | None = None
    trace: Trace | None = None
    defect: str = ""


def grant_ttl_ms(requested: object, default_s: float) -> int:
    """Return the ttl to grant, in milliseconds and within the bounds.

    `requested` is in milliseconds; if it is no number, `default_s` (seconds) is granted.
    """
    floor_ms, ceiling_ms = round(TTL_FLOOR_S * 1000), round(TTL_CEILING_S * 1000)
    requested_ms = bounds.clamp_whole(requested, floor_ms, ceiling_ms)
    return round(min(max(default_s, TTL_FLOOR_S), TTL_CEILING_S) * 1000) if requested_ms is None else requested_ms


def move(task: Task, status: TaskStatus, now: float, message: str | None = None) -> Task:
    """Return the task in another status, with the message that goes with it. Raises IllegalTransition."""
    if status not in TRANSITIONS[task.status]:
        raise IllegalTransition(task.status, status)
    return replace(task, status=status, status_message=message, last_updated_at=now)


def complete(task: Task, result: bytes, now: float) -> Task:
    """Return the task completed with a result. Raises IllegalTransition."""
    return replace(move(task, TaskStatus.COMPLETED, now), result=result)


def fail(task: Task, error: bytes, message: str, now: float) -> Task:
    """Return the task failed with a JSON-RPC error. Raises IllegalTransition."""
    return replace(move(task, TaskStatus.FAILED, now, message), error=error)


def find_created_task(
    method: str, params: Mapping[str, Any], result: Mapping[str, Any], *, stateless: bool
) -> Mapping[str, Any] | None:
    """Return the MCP Task in a call's result; None when the server did not make the call a task.

    `stateless` says which protocol: 2026-07-28 (`resultType: "task"`) or 2025-11-25 (`task` was requested in the
    params).
    """
    if method != "tools/call":
        return None
    if stateless:
        return result if result.get("resultType") == "task" else None
    if "task" not in params:
        return None
    task = result.get("task")
    return cast("Mapping[str, Any]", task) if isinstance(task, Mapping) and "taskId" in task else None


def after_report(task: Task, wire: Mapping[str, Any], now: float) -> Task:
    """Return a client task updated from its server's report; the same object when nothing changed.

    A report of `completed` or `failed` changes nothing yet, as the outcome is fetched separately. A task that has ended
    does not change any more. A ttl beyond all bounds counts as none: then the hub decides how long the task is kept.
    """
    status = TaskStatus(wire["status"])
    if task.status.ended or status in (TaskStatus.COMPLETED, TaskStatus.FAILED):
        return task
    message = wire.get("statusMessage")
    after = replace(
        task,
        status=status,
        status_message=message if isinstance(message, str) else None,
        ttl_ms=_parse_ttl_ms(wire.get("ttl", wire.get("ttlMs"))),
        poll_interval_ms=bounds.clamp_whole(
            wire.get("pollInterval", wire.get("pollIntervalMs")), high=bounds.LONGEST_MS
        ),
    )
    return task if after == task else replace(after, last_updated_at=now)


@dataclass(frozen=True, slots=True)
class Failure:
    """How a client task failed: its message, and its result where that has `isError`."""

    message: str | None
    result: Mapping[str, Any] | None = None


def find_failure(wire: Mapping[str, Any], result: Mapping[str, Any]) -> Failure | None:
    """Return how a client task failed, by its last status (`wire`) and its result; None when it succeeded.

    The status decides, whatever the result says. Without a status, `isError` of the result decides. If the status has
    no message, the text of the result is the message.
    """
    is_error = result.get("isError") is True
    if wire.get("status", TaskStatus.FAILED if is_error else None) != TaskStatus.FAILED:
        return None
    message = wire.get("statusMessage")
    if not isinstance(message, str) or not message:
        message = _join_text_blocks(result.get("content")) or None
    return Failure(message, result if is_error else None)


def _join_text_blocks(content: object) -> str:
    """Return the text blocks of a result's content, joined by newlines."""
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    texts = [cast("Mapping[str, Any]", block).get("text") for block in blocks if isinstance(block, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


def poll_s(task: Task) -> float:
    """Return the seconds until the hub polls a server for the status of a task again: as the server asks, in bounds."""
    requested_ms = POLL_INTERVAL_MS if task.poll_interval_ms is None else task.poll_interval_ms
    return min(max(requested_ms / 1000, SHORTEST_POLL_S), LONGEST_POLL_S)


def usable_remote_id(remote_id: str) -> str | None:
    """Return the id that a server gave its task if the hub can use the same id (short printable ASCII), else None."""
    return remote_id if 0 < len(remote_id) <= LONGEST_ID and remote_id.isascii() and remote_id.isprintable() else None


def expires_at(task: Task) -> float | None:
    """Return when the hub may delete the task, in seconds since the epoch; None if it has no ttl, and so is kept.

    That is the end of its ttl; for an ended task at the earliest GRACE_S after the end.
    """
    if task.ttl_ms is None:
        return None
    ttl_end = task.created_at + task.ttl_ms / 1000
    return max(ttl_end, task.last_updated_at + GRACE_S) if task.status.ended else ttl_end


def with_longer_ttl(task: Task, by_s: float) -> Task:
    """Return the task with a ttl that is `by_s` seconds longer; a task without a ttl unchanged."""
    return (
        task
        if task.ttl_ms is None
        else replace(task, ttl_ms=bounds.clamp_whole(task.ttl_ms + by_s * 1000, high=bounds.LONGEST_MS))
    )


def to_wire(task: Task) -> dict[str, Any]:
    """Return the MCP Task object. `ttl` is always present, null included."""
    wire: dict[str, Any] = {
        "taskId": task.id,
        "status": task.status.value,
        "createdAt": _iso_date(task.created_at),
        "lastUpdatedAt": _iso_date(task.last_updated_at),
        "ttl": task.ttl_ms,
    }
    if task.status_message:
        wire["statusMessage"] = task.status_message
    if task.poll_interval_ms is not None:
        wire["pollInterval"] = task.poll_interval_ms
    return wire


class Dated(Protocol):
    """A record that lists sort by its time of creation, then by its id."""

    @property
    def created_at(self) -> float: ...

    @property
    def id(self) -> str: ...


D = TypeVar("D", bound=Dated)


def paginate(tasks: Sequence[D], cursor: object, size: int) -> tuple[list[D], str | None]:
    """Return one page of tasks, oldest first, and the cursor of the next. Raises ValueError for an invalid cursor.

    A cursor names the last task of its page, so pages do not shift as tasks come and go.
    """
    ordered = sorted(tasks, key=_sort_key)
    if cursor is not None:
        last_key = parse_cursor(cursor)
        ordered = [task for task in ordered if _sort_key(task) > last_key]
    later = ordered[size:]
    return ordered[:size], make_cursor(ordered[size - 1]) if later else None


def _sort_key(item: Dated) -> tuple[float, str]:
    """Return the key by which lists are sorted: when it was created, and its id."""
    return item.created_at, item.id


def make_cursor(task: Dated) -> str:
    """Return the cursor of the page that begins after a task."""
    return urlsafe_b64encode(f"{task.created_at!r} {task.id}".encode()).decode()


def parse_cursor(cursor: object) -> tuple[float, str]:
    """Return the place in a list that a cursor names: a time of creation and an id. Raises ValueError for others."""
    if not isinstance(cursor, str):
        raise ValueError("a cursor is a string")
    created_at_text, separator, task_id = urlsafe_b64decode(cursor.encode()).decode().partition(" ")
    created_at = bounds.parse_real(created_at_text)
    # A number out of bounds was clamped to LARGEST_REAL.
    if not separator or created_at is None or abs(created_at) == bounds.LARGEST_REAL:
        raise ValueError("not a cursor")
    return created_at, task_id


def _parse_ttl_ms(value: object) -> int | None:
    """Return a server's ttl in milliseconds; None for a value that is no number or is beyond LONGEST_MS."""
    ttl_ms = bounds.clamp_whole(value)
    return None if ttl_ms is None or ttl_ms > bounds.LONGEST_MS else ttl_ms


def _iso_date(at: float) -> str:
    return bounds.utc_date(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")
