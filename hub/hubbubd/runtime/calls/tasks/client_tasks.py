"""Client tasks: calls that a server executes as tasks, from the task's creation to its end or cancellation.

Task and call are one commit before anything follows from them, so that a task survives reconnects and restarts.
"""

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from hubbubd.core import tasks as core
from hubbubd.core.calls import call_states as core_calls
from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox.request_states import Origin, PendingRequest
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.core.tasks import Task, TaskRole, TaskStatus
from hubbubd.errors import FailedPrecondition, HubError, PeerError
from hubbubd.runtime.calls.queue import ActiveCall, End, ServerQueue
from hubbubd.runtime.calls.tasks.active_task import ACCEPT_S, ActiveTask
from hubbubd.runtime.calls.tasks.poller import TaskPoller, require_result
from hubbubd.runtime.calls.tasks.questions import TaskQuestions
from hubbubd.runtime.inbox import Inbox
from hubbubd.runtime.ownership import Takeover
from hubbubd.runtime.records import Change, Ledger, Table, delete
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import Era, McpLink


class ClientTasks:
    """The client tasks of all servers."""

    def __init__(self, ledger: Ledger, table: Table[Task], calls: Table[Call], inbox: Inbox, clock: Clock) -> None:
        self._ledger = ledger
        self._table = table
        self._calls = calls
        self._inbox = inbox
        self._clock = clock
        self._questions = TaskQuestions(table, inbox, clock)
        self._poller = TaskPoller(ledger, table, self._questions, clock)
        self._active_tasks: dict[tuple[str, str], ActiveTask] = {}
        calls.follow_own_deletions(self._delete_task_of)

    async def cancel_unresumed(self, takeover: Takeover) -> None:
        """Cancel the tasks of these servers whose calls were not resumed, and withdraw the requests of such tasks."""
        resumed_ids = {call.task_id for call in self._calls if not call.state.ended}
        taken_over = [task for task in self._table if task.role is TaskRole.CLIENT and takeover.owns(task.server)]
        for task in taken_over:
            if task.id not in resumed_ids and not task.status.ended:
                self._poller.mark_cancelled(task.id, "its call has ended")
        needed_ids = {request_id for task in taken_over if task.id in resumed_ids for request_id in task.pending_ids}
        reason = f"{takeover.event_text}, and its task has ended"
        await self._inbox.abandon_all({Origin.TASK_INPUT}, reason, takeover.requests, except_ids=needed_ids)

    # Polling

    async def poll_new(
        self, queue: ServerQueue, active: ActiveCall, link: McpLink, wire: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Poll the task that a call has become until it ends, and return the call's result.

        Raises PeerError (the task failed) and UpstreamError: TASK_CANCELLED, TASK_LOST, INPUT_REFUSED.
        """
        active_task = ActiveTask("", wire["taskId"], queue, active, link.hello.era is Era.STATELESS)
        async with self._register(active_task):
            active_task.task_id = await self._commit(active, active_task, wire)
            queue.set_aside(active)
            return await self._poller.poll_until_ended(active_task)

    def server_fingerprint(self, call: Call) -> str | None:
        """Return the fingerprint of the server that executes a call as a task; None if no task is known."""
        task = self._table.record(call.task_id or "")
        return task.fingerprint if task is not None and task.role is TaskRole.CLIENT else None

    async def resume(self, queue: ServerQueue, active: ActiveCall) -> dict[str, Any]:
        """Poll the task of a call from before a restart until it ends, and return the result. Raises as `poll_new`."""
        task = self._table.get(active.call.task_id or "")
        if task.status.ended:
            return require_result(task)
        active_task = ActiveTask(task.id, task.remote_id or "", queue, active)
        async with self._register(active_task):
            active_task.stateless = (await queue.wait_for_link()).hello.era is Era.STATELESS
            return await self._poller.poll_until_ended(active_task)

    async def _commit(self, active: ActiveCall, active_task: ActiveTask, wire: Mapping[str, Any]) -> str:
        """Commit a new task together with its call, and return its id. Raises Unavailable."""

        def plan_task() -> tuple[str, Sequence[Change[Any]]]:
            """Plan the record of the task, and the reference of the call to it; return the id of the task."""
            task = self._new_task(active_task, wire)
            call = replace(active.call, task_id=task.id)
            step = partial(core_calls.merge_change, active.call, call)
            return task.id, [self._table.new(task.id, task), *self._calls.plan_step(call.id, step)]

        try:
            return await self._ledger.transact(plan_task)
        finally:  # if cancelled, the commit may have held
            stored_call = self._calls.record(active.call.id)
            active.call = replace(active.call, task_id=stored_call.task_id if stored_call is not None else None)

    def _new_task(self, active_task: ActiveTask, wire: Mapping[str, Any]) -> Task:
        """Return the record of a task as its server has reported it (`wire`), not stored yet."""
        config, now = active_task.queue.config, self._clock.now()
        task_id = core.usable_remote_id(active_task.remote_id)
        if task_id is None or self._table.record(task_id) is not None:
            task_id = f"task_{secrets.token_hex(8)}"
        task = Task(
            id=task_id,
            remote_id=active_task.remote_id,
            server=config.name,
            fingerprint=config.fingerprint,
            role=TaskRole.CLIENT,
            method=active_task.active.call.method,
            created_at=now,
            last_updated_at=now,
            call_id=active_task.active.call.id,
            principal=active_task.active.call.principal,
            trace=active_task.queue.tracer.begin(active_task.active.call.trace, "task tools/call"),
        )
        return core.after_report(task, wire, now)

    @asynccontextmanager
    async def _register(self, active_task: ActiveTask) -> AsyncGenerator[None]:
        """Register the task as under way for the block; if the block fails for good, cancel the task at the server.

        After the block the requests of the task are withdrawn, unless the next hub resumes it.
        """
        key = active_task.queue.config.name, active_task.remote_id
        self._active_tasks[key] = active_task
        active = active_task.active
        try:
            try:
                yield
            finally:
                if not self.outlives_hub(active):
                    self._questions.withdraw(active_task)
        except BaseException as exc:
            # A call ends by its deadline; any other cancellation is the end of the hub.
            is_hub_ending = not isinstance(exc, Exception) and not active.deadline.is_over
            if not is_hub_ending and not self.outlives_hub(active):
                with anyio.CancelScope(shield=True):
                    await self._cancel_at_server(active_task)
            raise
        finally:
            if self._active_tasks.get(key) is active_task:  # a server may have used the id for two tasks
                del self._active_tasks[key]
            active_task.done.set()

    def outlives_hub(self, active: ActiveCall) -> bool:
        """Return whether a call is detached and was stopped by shutdown, while its task continues at the server."""
        was_stopped = active.end is End.SHUTTING_DOWN
        task = self._table.record(active.call.task_id or "")
        return was_stopped and active.call.detached and task is not None and not task.status.ended

    async def _cancel_at_server(self, active_task: ActiveTask) -> None:
        """Cancel a task whose call has ended; it is recorded as cancelled even if its server refuses."""
        task = self._table.record(active_task.task_id)
        if task is not None and task.status.ended:
            return
        link = active_task.queue.link
        if link is not None:
            with suppress(PeerError, HubError), anyio.move_on_after(ACCEPT_S):
                await active_task.request(link, "tasks/cancel")
        task = self._table.record(active_task.task_id)
        if task is not None and not task.status.ended:
            fault = active_task.active.fault or (active_task.failure.fault if active_task.failure else None)
            reason = fault.message if fault else "its call ran out of time"
            self._poller.mark_cancelled(task.id, reason)

    def _delete_task_of(self, deleted: Call) -> None:
        """Delete a client task together with its call."""
        task = self._table.record(deleted.task_id or "")
        if task is not None and task.role is TaskRole.CLIENT:
            self._ledger.change_later(self._table, task.id, delete)

    # Requests and notifications of servers

    def find_active(self, server: str, remote_id: str) -> tuple[ActiveCall, str] | None:
        """Return the call and the hub's id of a task that a server names; None if it is not under way and stored."""
        active_task = self._active_tasks.get((server, remote_id))
        return (active_task.active, active_task.task_id) if active_task is not None and active_task.task_id else None

    def poll_soon(self, server: str, remote_id: str) -> None:
        """Poll a task at once, since the server has sent a notification about it."""
        if (active_task := self._active_tasks.get((server, remote_id))) is not None:
            active_task.wake.set()

    def poll_call_soon(self, call: Call) -> None:
        """Poll the task of a call at once, since a client asks for its status."""
        task = self._table.record(call.task_id or "")
        if task is not None and task.remote_id is not None:
            self.poll_soon(task.server, task.remote_id)

    async def open_request(self, request: PendingRequest) -> None:
        """Add a request on the wire to the inbox, in one commit with the references to it from its task and its call.

        So watchers of the call see at once that the call waits. Raises ResourceExhausted and Unavailable.
        """

        def add_reference(task: Task | None) -> Task | None:
            """Return a client task with the request among those that it waits for."""
            if task is None or task.role is not TaskRole.CLIENT:
                return task
            return replace(task, pending_ids=(*task.pending_ids, request.id))

        def plan_references() -> Sequence[Change[Any]]:
            """Return the changes of task and call; that of the call waits in write-behind already."""
            of_task = self._table.plan_step(request.task_id or "", add_reference)
            return [*of_task, *self._calls.waiting_changes(request.call_id or "")]

        await self._inbox.open([request], plan_references)

    # For callers

    async def cancel(self, task_id: str) -> Task:
        """Ask the server to cancel a task; from 2026-07-28 on that may take a while, or be too late.

        Raises NotFound, FailedPrecondition, PeerError, UpstreamError.
        """
        task = self._table.get(task_id)
        active_task = self._active_tasks.get((task.server, task.remote_id or ""))
        if not task.status.ended:
            if active_task is None or (link := active_task.queue.link) is None:
                raise FailedPrecondition(f"{task.server} is not connected", reason="SERVER_NOT_CONNECTED")
            try:
                wire = await active_task.request(link, "tasks/cancel")
            except PeerError as exc:
                if exc.code != INVALID_PARAMS:
                    raise
                active_task.wake.set()  # it may have ended at this moment: poll its status
            else:
                if not active_task.stateless:
                    await self._poller.record_report(task_id, wire)
                active_task.wake.set()
            with anyio.move_on_after(ACCEPT_S):
                await active_task.done.wait()
            task = self._table.get(task_id)
            if task.status in (TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED, TaskStatus.CANCELLED):
                return task
        raise FailedPrecondition(f"this task has ended: {task.status}", reason="TASK_FINISHED")
