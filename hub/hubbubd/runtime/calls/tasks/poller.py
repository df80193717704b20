"""Polls client tasks until they end.

2025-11-25: `tasks/get` for the status, and `tasks/result` once the task has ended or needs input, for which the server
then sends requests on the wire. 2026-07-28 (tasks extension, SEP-2663): `tasks/get` returns status, requests for input
and result, and `tasks/update` takes the answers. Notifications only hasten the next poll.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog

from hubbubd import payload
from hubbubd.core import tasks as core
from hubbubd.core.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from hubbubd.core.servers import backoff
from hubbubd.core.tasks import Failure, Task, TaskStatus
from hubbubd.errors import Category, Fault, HubError, PeerError, UpstreamError
from hubbubd.runtime.calls.tasks.active_task import ActiveTask
from hubbubd.runtime.calls.tasks.questions import TaskQuestions
from hubbubd.runtime.records import Change, Ledger, Table
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import McpLink

log = structlog.get_logger(__name__)


class TaskPoller:
    """Polls the client tasks of all servers, and updates their records."""

    def __init__(self, ledger: Ledger, table: Table[Task], questions: TaskQuestions, clock: Clock) -> None:
        self._ledger = ledger
        self._table = table
        self._questions = questions
        self._clock = clock

    async def poll_until_ended(self, active_task: ActiveTask) -> dict[str, Any]:
        """Poll a task until it ends, and return the result of its call. Raises PeerError and UpstreamError."""
        active_task.active.last_span = self._table.get(active_task.task_id).trace
        async with active_task.group as group:
            self._questions.resume(active_task)
            await self._poll(active_task)
            group.cancel_scope.cancel()
        if active_task.failure is not None:
            raise active_task.failure
        return require_result(self._table.get(active_task.task_id))

    async def _poll(self, active_task: ActiveTask) -> None:
        """Poll a task until it has ended or is given up (`failure`)."""
        while not (task := self._table.get(active_task.task_id)).status.ended and active_task.failure is None:
            link = await active_task.queue.wait_for_link()
            least_pause_s = 0.0
            try:
                await self._poll_once(active_task, link)
            except UpstreamError as exc:
                least_pause_s = backoff.clamp_retry_after_s(exc.fault.retry_after_s)
                if not exc.fault.retryable:
                    active_task.failure = exc
            except PeerError as exc:
                # A server may forget a task as soon as it has sent the result, which may be on its way.
                if exc.code in (INVALID_PARAMS, METHOD_NOT_FOUND) and not active_task.fetching:
                    if not self._table.get(task.id).status.ended:
                        active_task.failure = _task_lost_error(task, exc)
                    await self._record_end(active_task, exc)
            except HubError as exc:
                log.warning("task state not stored", task=task.id, error=str(exc))
            if active_task.failure is None and not (task := self._table.get(task.id)).status.ended:
                await active_task.wait_for_next_poll(max(core.poll_s(task), least_pause_s))

    async def _poll_once(self, active_task: ActiveTask, link: McpLink) -> None:
        """Request the status of a task, record it, and do what the status requires in the server's revision of MCP."""
        wire = await active_task.request(link, "tasks/get")
        await self.record_report(active_task.task_id, wire)
        status = TaskStatus(wire["status"])
        if active_task.stateless:
            match status:
                case TaskStatus.COMPLETED:
                    await self._record_end(active_task, wire["result"])
                case TaskStatus.FAILED:
                    error = wire["error"]
                    await self._record_end(active_task, PeerError(error["code"], error["message"], error.get("data")))
                case TaskStatus.INPUT_REQUIRED:
                    await self._questions.add_new(active_task, wire["inputRequests"])
                case _:
                    pass
        elif status is TaskStatus.INPUT_REQUIRED:
            if not active_task.fetching:
                active_task.fetching = True
                active_task.group.start_soon(self._fetch_during_questions, active_task, link)
        elif status in (TaskStatus.COMPLETED, TaskStatus.FAILED) and not active_task.fetching:
            await self._fetch_result(active_task, link, wire)

    async def _fetch_result(self, active_task: ActiveTask, link: McpLink, reported_task: Mapping[str, Any]) -> None:
        """Fetch the result of a task that has ended, and record it; or the failure that status or result shows.

        `reported_task` is the task with its status, as the server has just reported it.
        """
        try:
            result = await active_task.request(link, "tasks/result")
            await self._record_end(active_task, core.find_failure(reported_task, result) or result)
        except PeerError as exc:
            await self._record_end(active_task, exc)

    async def _fetch_during_questions(self, active_task: ActiveTask, link: McpLink) -> None:
        """Request the result of a task that needs input, and record it; this lets the server send its questions."""
        outcome: dict[str, Any] | PeerError | None = None
        try:
            outcome = await active_task.request(link, "tasks/result")
        except PeerError as exc:
            outcome = exc
        except HubError as exc:
            log.info("task result fetch failed; retried", task=active_task.task_id, error=str(exc))
        if outcome is not None:
            wire: Mapping[str, Any] = {}
            # A cancelled task may return a result, too: the status decides.
            with suppress(PeerError, HubError):
                wire = await active_task.request(link, "tasks/get")
                await self.record_report(active_task.task_id, wire)
            if isinstance(outcome, dict):
                await self._record_end(active_task, core.find_failure(wire, outcome) or outcome)
            else:
                await self._record_end(active_task, outcome)
        active_task.fetching = False
        active_task.wake.set()

    async def record_report(self, task_id: str, wire: Mapping[str, Any]) -> Task:
        """Record a task as the server has reported it (`wire`), and return it; durable on return."""

        def plan_report() -> tuple[Task, list[Change[Any]]]:
            """Plan the task as reported, if that differs from its record; return it."""
            before = self._table.get(task_id)
            after = core.after_report(before, wire, self._clock.now())
            return after, [] if after is before else [self._table.change(task_id, after)]

        return await self._ledger.transact(plan_report)

    async def _record_end(self, active_task: ActiveTask, outcome: dict[str, Any] | PeerError | Failure) -> None:
        """Record the outcome of a task unless it has ended; write-behind if the store does not take it now."""
        now = self._clock.now()

        def end_unless_ended(task: Task | None) -> Task | None:
            return task if task is None or task.status.ended else _end_task(task, outcome, now)

        try:
            await self._ledger.change(self._table, active_task.task_id, end_unless_ended)
        except HubError:
            # The record follows when the store recovers.
            self._ledger.change_later(self._table, active_task.task_id, end_unless_ended)

    def mark_cancelled(self, task_id: str, reason: str) -> None:
        """Mark a task as cancelled unless it has ended, write-behind."""
        now = self._clock.now()

        def cancel_unless_ended(task: Task | None) -> Task | None:
            return task if task is None or task.status.ended else core.move(task, TaskStatus.CANCELLED, now, reason)

        self._ledger.change_later(self._table, task_id, cancel_unless_ended)


def require_result(task: Task) -> dict[str, Any]:
    """Return the result of an ended task for its call. Raises PeerError and UpstreamError."""
    if task.result is not None:
        return payload.loads(task.result)
    if task.error is not None:
        error = payload.loads(task.error)
        raise PeerError(error["code"], error["message"], error.get("data"))
    if task.status is TaskStatus.FAILED:
        message = task.status_message or f"{task.server} says that the task failed, and not why"
        raise UpstreamError(Fault(code="TASK_FAILED", category=Category.SERVER, message=message))
    message = task.status_message or f"{task.server} cancelled the task"
    raise UpstreamError(Fault(code="TASK_CANCELLED", category=Category.CANCELLED, message=message))


def _end_task(task: Task, outcome: dict[str, Any] | PeerError | Failure, now: float) -> Task:
    """Return a task as ended with its outcome."""
    if isinstance(outcome, PeerError):
        error = {"code": outcome.code, "message": outcome.message}
        if outcome.data is not None:
            error["data"] = outcome.data
        return core.fail(task, payload.dumps(error), outcome.message, now)
    if isinstance(outcome, Failure):
        failed = core.move(task, TaskStatus.FAILED, now, outcome.message)
        return failed if outcome.result is None else replace(failed, result=payload.dumps(outcome.result))
    return core.complete(task, payload.dumps(outcome), now)


def _task_lost_error(task: Task, exc: PeerError) -> UpstreamError:
    message = f"{task.server} does not know the task any more: {exc.message}"
    return UpstreamError(Fault(code="TASK_LOST", category=Category.SERVER, message=message))
