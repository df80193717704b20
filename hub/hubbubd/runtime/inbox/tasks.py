"""Receiver tasks: requests that servers sent as tasks, held by the hub until the server fetches the result.

MCP 2025-11-25, basic/utilities/tasks. A task belongs to its server, not to a connection. The answer to its pending
request and the end of the task are one commit.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass
from typing import Any, Protocol, cast

import anyio

from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.core import tasks as core
from hubbubd.core.filters import TaskFilter
from hubbubd.core.inbox.request_states import CauseSource, Origin, PendingRequest
from hubbubd.core.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, REQUEST_CANCELLED
from hubbubd.core.tasks import RELATED_TASK, Task, TaskRole, TaskStatus
from hubbubd.errors import FailedPrecondition, HubError, NotFound
from hubbubd.runtime.alarms import Alarms, Due
from hubbubd.runtime.inbox.inbox import Inbox
from hubbubd.runtime.ownership import Ownership, Takeover
from hubbubd.runtime.records import Change, Ledger, RecordReader, Table
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import InboundReply, ReplyError

PAGE_SIZE = 50
"""The most tasks on one page of `tasks/list`."""

ENDED_PER_OPEN = 10
"""How many tasks a server may have in all for each open task that it may have: ended ones stay until their ttl ends."""

Notify = Callable[[str, str, dict[str, Any]], None]
"""(server, method, params): sends a notification if the server is connected."""


@dataclass(kw_only=True, eq=False, repr=False)
class Tasks(RecordReader[Task]):
    """The tasks of all servers, in both roles. A receiver task ends when its pending request is answered or expires."""

    ledger: Ledger
    table: InitVar[Table[Task]]
    inbox: Inbox
    clock: Clock
    alarms: Alarms
    notify: Notify
    cancel_client: Callable[[str], Awaitable[Task]]
    max_per_server: int
    ownership: Ownership

    def __post_init__(self, table: Table[Task]) -> None:
        super().__init__(table)
        self._end_events: dict[str, anyio.Event] = {}
        self.inbox.set_settler(Origin.TASK, self._end_with_answer)
        table.follow(self._wake_waiters)
        table.follow_own(self._act_on_change)
        self.clock.on_jump(self.postpone)

    def take_over(self, takeover: Takeover) -> None:
        """Set the alarms of the tasks of the servers taken over: this hub acts on them from now on."""
        self._table.for_each(lambda task: self._act_on_change(None, task) if takeover.owns(task.server) else None)

    def stop_acting(self, server: str) -> None:
        """Clear the alarms of a server's tasks: this hub does not act on them any more."""
        for task in self._table:
            if task.server == server:
                self.alarms.clear(Due.TASK, task.id)

    # Reading

    def result(self, task_id: str) -> bytes:
        """Return the MCP result of an ended task, as JSON. Raises NotFound and FailedPrecondition."""
        task = self.get(task_id)
        match task.status:
            case TaskStatus.COMPLETED:
                return task.result or b"{}"
            case TaskStatus.FAILED if task.result is not None:
                return task.result  # a tool result with isError
            case TaskStatus.FAILED:
                raise FailedPrecondition(
                    task.status_message or "the task failed",
                    reason="TASK_FAILED",
                    metadata={"error": (task.error or b"").decode()},
                )
            case TaskStatus.CANCELLED:
                raise FailedPrecondition("the task was cancelled", reason="TASK_CANCELLED")
            case _:
                raise FailedPrecondition("the task has not ended yet; watch it", reason="TASK_NOT_FINISHED")

    # Changing

    async def add(self, task: Task, request: PendingRequest) -> None:
        """Commit a new task together with its pending request. Raises ResourceExhausted and Unavailable."""
        await self.inbox.open([request], lambda: [self._table.new(task.id, task)])

    async def cancel(self, task_id: str, message: str = "cancelled on request") -> Task:
        """Cancel an unfinished task, and withdraw its pending request. Raises NotFound, FailedPrecondition.

        A client task is cancelled by its server, which may take a while.
        """
        if self.get(task_id).role is TaskRole.CLIENT:
            return await self.cancel_client(task_id)

        def plan_cancellation() -> tuple[Task, Sequence[Change[Any]]]:
            """Plan the end of the task, and the withdrawal of its requests. Raises as `cancel`."""
            task = self.get(task_id)
            if task.status.ended:
                raise FailedPrecondition(f"this task has ended: {task.status}", reason="TASK_FINISHED")
            after = core.move(task, TaskStatus.CANCELLED, self.clock.now(), message)
            withdrawals = self.inbox.plan_withdrawals(task.pending_ids, "its task was cancelled")
            return after, [self._table.change(task_id, after), *withdrawals]

        return await self.ledger.transact(plan_cancellation)

    async def clear(self, server: str) -> None:
        """Cancel and delete the receiver tasks of a server that was disconnected on purpose or replaced."""
        for task in self.select(TaskFilter(server=server, role=TaskRole.RECEIVER)):
            with suppress(FailedPrecondition, NotFound):  # it has ended, or is deleted, already
                await self.cancel(task.id, "the server was disconnected")
            await self._delete(task.id)

    async def wait_ended(self, task_id: str) -> Task:
        """Wait until the task has ended, and return it. Raises NotFound."""
        while not (task := self.get(task_id)).status.ended:
            await self._end_events.setdefault(task_id, anyio.Event()).wait()
        return task

    # Settling

    def _end_with_answer(self, request: PendingRequest) -> Sequence[Change[Any]]:
        """Return the change that ends the request's task, for the commit of the answer; none if the task has ended."""
        task = self._table.record(request.task_id or "")
        if task is None or task.status.ended:
            return ()
        assert request.answer is not None
        now = self.clock.now()
        if request.answer.refused:
            error = payload.loads(request.answer.payload)["error"]
            return [self._table.change(task.id, core.fail(task, payload.dumps(error), error["message"], now))]
        return [self._table.change(task.id, core.complete(task, request.answer.payload, now))]

    def _wake_waiters(self, before: Task | None, after: Task | None) -> None:
        """Wake callers of `wait_ended` once the task has ended or is deleted."""
        task = after or before
        assert task is not None
        if (after is None or after.status.ended) and (ended := self._end_events.pop(task.id, None)) is not None:
            ended.set()

    def _act_on_change(self, before: Task | None, after: Task | None) -> None:
        """Set the alarm of a task, and notify its server of a new status."""
        if after is None:
            if before is not None:
                self.alarms.clear(Due.TASK, before.id)
            return
        self._set_alarm(after)
        if before is not None and before.status is not after.status and after.role is TaskRole.RECEIVER:
            self.notify(after.server, "notifications/tasks/status", core.to_wire(after))

    def _set_alarm(self, task: Task) -> None:
        """Set the alarm that deletes a receiver task when its ttl ends."""
        # Client tasks live as long as their calls.
        at = core.expires_at(task) if task.role is TaskRole.RECEIVER else None
        if at is None:
            return
        if not task.status.ended:
            # The deadline of its request ends the task first, also if it passed while the hub was down.
            at = max(at, self.clock.now()) + core.GRACE_S
        self.alarms.set(Due.TASK, task.id, at, lambda: self._delete_if_due(task.id))

    def postpone(self, by_s: float) -> None:
        """Lengthen the ttl of this hub's receiver tasks by the seconds that the clock was set ahead; write-behind."""
        if by_s <= 0:
            return
        for task in self.select(TaskFilter(role=TaskRole.RECEIVER)):
            if self.ownership.owns(task.server):
                self.ledger.change_later(
                    self._table, task.id, lambda stored: stored and core.with_longer_ttl(stored, by_s)
                )

    async def _delete_if_due(self, task_id: str) -> None:
        """Delete a task whose alarm has come. Raises Unavailable.

        A task that ended after its alarm was set, as the store was not available, stays until its ttl ends.
        """
        await self._delete(task_id, lambda task: self.clock.now() >= (core.expires_at(task) or 0))
        if (task := self._table.record(task_id)) is not None:
            self._set_alarm(task)  # also where the clock was set back while the deletion was retried

    async def _delete(self, task_id: str, may_delete: Callable[[Task], bool] = lambda _: True) -> None:
        """Delete a task, and withdraw its requests, if `may_delete` is true of the stored task. Raises Unavailable."""

        def plan_deletion() -> tuple[None, Sequence[Change[Any]]]:
            """Plan the deletion, and the withdrawal of the task's requests, if it exists and `may_delete` allows it."""
            task = self._table.record(task_id)
            if task is None or not may_delete(task):
                return None, ()
            withdrawals = self.inbox.plan_withdrawals(task.pending_ids, "the server did not fetch it in time")
            return None, [self._table.change(task_id, None), *withdrawals]

        await self.ledger.transact(plan_deletion)


class TaskOwner(Protocol):
    """The server that tasks belong to, with its current options."""

    config: ServerConfig
    fingerprint: str


class ReceiverTasks:
    """The receiver role towards one server: creates its tasks and serves its `tasks/*` requests."""

    def __init__(self, owner: TaskOwner, tasks: Tasks, inbox: Inbox, clock: Clock) -> None:
        self._owner = owner
        self._tasks = tasks
        self._inbox = inbox
        self._clock = clock

    def new_task(self, task_params: object, method: str, request: PendingRequest) -> Task:
        """Return a task for a request, not stored yet. Raises ReplyError when the server has too many.

        `task_params` is the `task` in the params of the server's request; a `ttl` in it is granted within bounds.
        """
        config = self._owner.config
        own_tasks, limit = self._own_tasks(), self._tasks.max_per_server
        if sum(not task.status.ended for task in own_tasks) >= limit or len(own_tasks) >= limit * ENDED_PER_OPEN:
            raise ReplyError(INTERNAL_ERROR, f"too many tasks: at most {limit} open at once")
        requested_ttl = cast("dict[str, Any]", task_params).get("ttl") if isinstance(task_params, dict) else None
        now = self._clock.now()
        return Task(
            id=secrets.token_hex(16),
            server=config.name,
            fingerprint=config.fingerprint,
            role=TaskRole.RECEIVER,
            method=method,
            created_at=now,
            last_updated_at=now,
            ttl_ms=core.grant_ttl_ms(requested_ttl, config.receiver_task_ttl_s),
            call_id=request.call_id,
            pending_ids=(request.id,),
            principal=request.principal if request.cause_source is CauseSource.WIRE else None,
        )

    async def serve(self, method: str, params: dict[str, Any]) -> InboundReply:
        """Answer tasks/get, tasks/result, tasks/list and tasks/cancel. Raises ReplyError."""
        match method:
            case "tasks/list":
                return self._list_tasks(params.get("cursor"))
            case "tasks/get":
                return InboundReply(result=core.to_wire(self._require_own_task(params)))
            case "tasks/cancel":
                return await self._cancel_task(self._require_own_task(params))
            case _:  # tasks/result
                return await self._wait_for_result(self._require_own_task(params))

    def _list_tasks(self, cursor: object) -> InboundReply:
        """Answer tasks/list. Raises ReplyError for an invalid cursor."""
        try:
            tasks, next_cursor = core.paginate(self._own_tasks(), cursor, PAGE_SIZE)
        except ValueError:
            raise ReplyError(INVALID_PARAMS, "Invalid cursor") from None
        result: dict[str, Any] = {"tasks": [core.to_wire(task) for task in tasks]}
        return InboundReply(result=result if next_cursor is None else {**result, "nextCursor": next_cursor})

    async def _cancel_task(self, task: Task) -> InboundReply:
        """Answer tasks/cancel. Raises ReplyError if the task has ended, or the store does not take it."""
        try:
            cancelled = await self._tasks.cancel(task.id, "cancelled by the server")
        except FailedPrecondition:
            raise ReplyError(INVALID_PARAMS, f"Cannot cancel task: it has ended ({task.status})") from None
        except HubError as exc:
            raise ReplyError(INTERNAL_ERROR, exc.message) from None
        return InboundReply(result=core.to_wire(cancelled))

    async def _wait_for_result(self, task: Task) -> InboundReply:
        """Answer tasks/result once the task has ended. Raises ReplyError if it failed or was cancelled."""
        try:
            ended = await self._tasks.wait_ended(task.id)
        except NotFound:
            raise _not_found_error() from None

        def on_sent(failure: str | None) -> None:
            """Mark the answers as delivered, unless a `failure` says why the result was not sent."""
            for request_id in ended.pending_ids:
                if failure is None:
                    self._inbox.mark_delivered(request_id)

        match ended.status:
            case TaskStatus.COMPLETED:
                result = payload.loads(ended.result or b"{}")
                meta = {**result.get("_meta", {}), RELATED_TASK: {"taskId": ended.id}}
                return InboundReply(result={**result, "_meta": meta}, on_sent=on_sent)
            case TaskStatus.FAILED:
                if ended.error is None:  # its record was repaired
                    raise ReplyError(INTERNAL_ERROR, "The task failed", None, on_sent)
                error = payload.loads(ended.error)
                raise ReplyError(error["code"], error["message"], error.get("data"), on_sent)
            case _:
                raise ReplyError(REQUEST_CANCELLED, "The task was cancelled")

    def _require_own_task(self, params: dict[str, Any]) -> Task:
        """Return the task that params name. Raises ReplyError if it is not this server's."""
        with suppress(NotFound):
            task = self._tasks.get(str(params.get("taskId")))
            if self._is_own(task):
                return task
        raise _not_found_error()

    def _own_tasks(self) -> list[Task]:
        """Return the receiver tasks of this server."""
        return [task for task in self._tasks if self._is_own(task)]

    def _is_own(self, task: Task) -> bool:
        """Return whether a task is a receiver task of this server, not of an earlier server with the same name."""
        is_of_server = task.server == self._owner.config.name and task.fingerprint == self._owner.fingerprint
        return is_of_server and task.role is TaskRole.RECEIVER


def _not_found_error() -> ReplyError:
    return ReplyError(INVALID_PARAMS, "Task not found")
