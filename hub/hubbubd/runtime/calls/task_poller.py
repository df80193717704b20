"""Client tasks, asked for what becomes of them until they have ended.

2025-11-25: asked for the status, and for the result as soon as that is there or the server needs input, which it then
asks for on the wire. 2026-07-28 (tasks extension, SEP-2663): status, questions and result all come from tasks/get, the
answers go back by tasks/update. Notifications only hasten the next poll.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog

from hubbubd import payload
from hubbubd.clock import Clock
from hubbubd.core import backoff
from hubbubd.core import tasks as core
from hubbubd.core.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from hubbubd.core.tasks import Failure, Task, TaskStatus
from hubbubd.errors import Category, Fault, HubError, PeerError, UpstreamError
from hubbubd.runtime.calls.followed import Followed
from hubbubd.runtime.calls.task_questions import TaskQuestions
from hubbubd.runtime.records import Change, Ledger, Table
from hubbubd.upstream.ports import Link

log = structlog.get_logger(__name__)


class TaskPoller:
    """Polls the client tasks of all servers, and keeps what they say."""

    def __init__(self, ledger: Ledger, table: Table[Task], questions: TaskQuestions, clock: Clock) -> None:
        self._ledger = ledger
        self._table = table
        self._questions = questions
        self._clock = clock

    async def follow(self, followed: Followed) -> dict[str, Any]:
        """Returns the result of the task's call. Raises PeerError and UpstreamError."""
        followed.active.place = self._table.get(followed.task_id).trace
        async with followed.group as group:
            self._questions.take_up(followed)
            await self._poll(followed)
            group.cancel_scope.cancel()
        if followed.failure is not None:
            raise followed.failure
        return outcome(self._table.get(followed.task_id))

    async def _poll(self, followed: Followed) -> None:
        """Returns when the task has ended, or is given up."""
        while not (task := self._table.get(followed.task_id)).status.ended and followed.failure is None:
            link = await followed.queue.connected()
            longer_s = 0.0
            try:
                await self._ask(followed, link)
            except UpstreamError as exc:
                longer_s = backoff.asked_s(exc.fault.retry_after_s)
                if not exc.fault.retryable:
                    followed.failure = exc
            except PeerError as exc:
                # A server may forget a task together with handing out its result, which is then on its way.
                if exc.code in (INVALID_PARAMS, METHOD_NOT_FOUND) and not followed.fetching:
                    if not self._table.get(task.id).status.ended:
                        followed.failure = _lost(task, exc)
                    await self._end(followed, exc)
            except HubError as exc:
                log.warning("a task's state was not kept", task=task.id, error=str(exc))
            if followed.failure is None and not (task := self._table.get(task.id)).status.ended:
                await followed.pause(max(core.poll_s(task), longer_s))

    async def _ask(self, followed: Followed, link: Link) -> None:
        wire = await followed.request(link, "tasks/get")
        await self.see(followed.task_id, wire)
        status = TaskStatus(wire["status"])
        if followed.stateless:
            match status:
                case TaskStatus.COMPLETED:
                    await self._end(followed, wire["result"])
                case TaskStatus.FAILED:
                    error = wire["error"]
                    await self._end(followed, PeerError(error["code"], error["message"], error.get("data")))
                case TaskStatus.INPUT_REQUIRED:
                    await self._questions.put(followed, wire["inputRequests"])
                case _:
                    pass
        elif status is TaskStatus.INPUT_REQUIRED:
            if not followed.fetching:
                followed.fetching = True
                followed.group.start_soon(self._fetch_while_asked, followed, link)
        elif status in (TaskStatus.COMPLETED, TaskStatus.FAILED) and not followed.fetching:
            await self._fetch(followed, link, wire)

    async def _fetch(self, followed: Followed, link: Link, wire: Mapping[str, Any]) -> None:
        try:
            result = await followed.request(link, "tasks/result")
            await self._end(followed, core.failure(wire, result) or result)
        except PeerError as exc:
            await self._end(followed, exc)

    async def _fetch_while_asked(self, followed: Followed, link: Link) -> None:
        """Waits for the result, which gives the server a way to ask; polling goes on meanwhile."""
        outcome: dict[str, Any] | PeerError | None = None
        try:
            outcome = await followed.request(link, "tasks/result")
        except PeerError as exc:
            outcome = exc
        except HubError as exc:
            log.info("the result of a task is asked for again", task=followed.task_id, error=str(exc))
        if outcome is not None:
            wire: Mapping[str, Any] = {}
            # A cancelled task may have an answer, too: what has become of it is what its status says.
            with suppress(PeerError, HubError):
                wire = await followed.request(link, "tasks/get")
                await self.see(followed.task_id, wire)
            await self._end(followed, (core.failure(wire, outcome) if isinstance(outcome, dict) else None) or outcome)
        followed.fetching = False
        followed.wake.set()

    async def see(self, task_id: str, wire: Mapping[str, Any]) -> Task:
        """Keeps what the server said of a task; durable, so that each of its states is seen."""

        def plan() -> tuple[Task, list[Change[Any]]]:
            before = self._table.get(task_id)
            after = core.observed(before, wire, self._clock.now())
            return after, [] if after is before else [self._table.change(task_id, after)]

        return await self._ledger.transact(plan)

    async def _end(self, followed: Followed, outcome: dict[str, Any] | PeerError | Failure) -> None:
        task, now = self._table.get(followed.task_id), self._clock.now()
        if task.status.ended:
            return
        if isinstance(outcome, PeerError):
            error = {"code": outcome.code, "message": outcome.message}
            if outcome.data is not None:
                error["data"] = outcome.data
            task = core.fail(task, payload.dumps(error), outcome.message, now)
        elif isinstance(outcome, Failure):
            task = core.move(task, TaskStatus.FAILED, now, outcome.message)
            task = task if outcome.result is None else replace(task, result=payload.dumps(outcome.result))
        else:
            task = core.complete(task, payload.dumps(outcome), now)
        try:
            await self._ledger.commit([Change(self._table, task.id, task)])
        except HubError:
            self.put(task)  # the record follows when the store recovers

    def put(self, task: Task) -> None:
        """Keeps a task as it is now, a moment later."""
        self._ledger.later(Change(self._table, task.id, task))


def outcome(task: Task) -> dict[str, Any]:
    """What the call of an ended task ends with. Raises PeerError and UpstreamError."""
    if task.result is not None:
        return payload.loads(task.result)
    if task.error is not None:
        error = payload.loads(task.error)
        raise PeerError(error["code"], error["message"], error.get("data"))
    if task.status is TaskStatus.FAILED:
        message = task.status_message or f"{task.server} says that the task failed, and not why"
        raise UpstreamError(Fault(code="TASK_FAILED", category=Category.SERVER, message=message))
    words = task.status_message or f"{task.server} cancelled the task"
    raise UpstreamError(Fault(code="TASK_CANCELLED", category=Category.CANCELLED, message=words))


def _lost(task: Task, exc: PeerError) -> UpstreamError:
    message = f"{task.server} does not know the task any more: {exc.message}"
    return UpstreamError(Fault(code="TASK_LOST", category=Category.SERVER, message=message))
