"""Requests for input in the responses to `tasks/get`: added to the inbox, and answered by `tasks/update` (SEP-2663)."""

from dataclasses import replace
from typing import Any

import anyio
import structlog

from hubbubd import payload
from hubbubd.core import tasks as core
from hubbubd.core.inbox.request_states import Delivery, Origin, RequestState
from hubbubd.core.tasks import Task
from hubbubd.errors import PeerError, UpstreamError
from hubbubd.runtime.calls.rounds.multi_round import (
    has_configured_answer,
    input_refused_error,
    new_request,
    parse_questions,
)
from hubbubd.runtime.calls.tasks.active_task import ACCEPT_S, ActiveTask
from hubbubd.runtime.inbox import Inbox
from hubbubd.runtime.records import Table
from hubbubd.timing.clock import Clock

log = structlog.get_logger(__name__)


class TaskQuestions:
    """The requests for input of all client tasks."""

    def __init__(self, table: Table[Task], inbox: Inbox, clock: Clock) -> None:
        self._table = table
        self._inbox = inbox
        self._clock = clock

    async def add_new(self, active_task: ActiveTask, input_requests: object) -> None:
        """Add the new questions of a task to the inbox and its record; deliver their answers in the background."""
        queue, active = active_task.queue, active_task.active
        stored = dict(self._table.get(active_task.task_id).questions)
        new = {key: question for key, question in parse_questions(input_requests).items() if key not in stored}
        if not new:
            return
        requests = {
            key: new_request(queue, active, Origin.TASK_INPUT, kind, params, now=self._clock.now())
            for key, (kind, params) in new.items()
            if not has_configured_answer(queue, kind)
        }
        # "" where the configuration answers.
        request_ids = [(key, requests[key].id if key in requests else "") for key in new]

        def add_references(task: Task | None) -> Task | None:
            """Return the task with its new questions, and the requests that it waits for."""
            if task is None:
                return None
            pending_ids = (*task.pending_ids, *(request.id for request in requests.values()))
            return replace(task, questions=(*task.questions, *request_ids), pending_ids=pending_ids)

        await self._inbox.open(
            list(requests.values()), lambda: self._table.plan_step(active_task.task_id, add_references)
        )
        for key, request_id in request_ids:
            active_task.group.start_soon(self._deliver_answer, active_task, key, request_id)

    def resume(self, active_task: ActiveTask) -> None:
        """Deliver the answers to those of a task's requests that were open or undelivered before a restart."""
        for key, request_id in self._table.get(active_task.task_id).questions:
            request = self._inbox.find(request_id) if request_id else None
            is_undelivered = request is not None and (
                request.state is RequestState.OPEN or request.delivery is Delivery.PENDING
            )
            if is_undelivered or not request_id:
                active_task.group.start_soon(self._deliver_answer, active_task, key, request_id)

    def withdraw(self, active_task: ActiveTask) -> None:
        """Withdraw the requests of a task that has ended or is given up."""
        task = self._table.record(active_task.task_id)
        for request_id in task.pending_ids if task is not None else ():
            self._inbox.abandon(request_id, "its task has ended")

    async def _deliver_answer(self, active_task: ActiveTask, key: str, request_id: str) -> None:
        """Wait for the answer to a request, and deliver it at least once. If it is refused, the task is given up.

        Without a request id the configured answer, the roots, is delivered.
        """
        answer: Any = {"roots": list(active_task.queue.config.roots)}
        if request_id:
            with active_task.queue.park_causes(active_task.active, request_id):
                request = await self._inbox.wait(request_id)
            if request.answer is None or request.answer.refused:
                active_task.failure = input_refused_error(f"{request.kind} was refused, so the task is cancelled")
                active_task.wake.set()
                return
            answer = payload.loads(request.answer.payload)
        while True:
            link = await active_task.queue.wait_for_link()
            try:
                # Shielded: the answer may end the task before the server confirms it.
                with anyio.CancelScope(shield=True):
                    with anyio.move_on_after(ACCEPT_S) as timeout:
                        await active_task.request(link, "tasks/update", inputResponses={key: answer})
                    if not timeout.cancelled_caught:
                        await self._inbox.mark_all_delivered([request_id])  # durable before the end of the call
                        active_task.wake.set()
                        return
            except PeerError as exc:
                self._inbox.mark_not_delivered(request_id, f"the server refused it: {exc.message}")
                return
            except UpstreamError as exc:
                log.info("answer delivery failed; retried", task=active_task.task_id, error=str(exc))
            await anyio.sleep(core.poll_s(self._table.get(active_task.task_id)))
