"""`hub.tasks`: tasks that the hub holds for servers, and tasks that servers hold for the hub."""

from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Any

from hubbub.v1 import task_pb2
from hubbub_client.data import watch_events
from hubbub_client.data.conversion import enum_number, enum_numbers, read, read_result
from hubbub_client.data.records import Task, TaskRole, TaskStatus
from hubbub_client.data.watch_events import WatchEvent
from hubbub_client.services.pages import PageFields, fetch_pages
from hubbub_client.services.service import HubService
from hubbub_client.watch import follow_watch


class Tasks(HubService):
    """TaskService. Every method raises HubbubError; NotFound if the task does not exist."""

    async def list(
        self,
        *,
        server: str | None = None,
        role: TaskRole | None = None,
        statuses: Collection[TaskStatus] = (),
        limit: int | None = None,
    ) -> Sequence[Task]:
        """Return the tasks that match all given conditions, newest first."""
        condition = _task_filter(server, role, statuses)

        async def fetch_page(page_fields: PageFields) -> tuple[Sequence[Task], str]:
            """Return the records of one page, and the token of the next page; "" after the last."""
            request = task_pb2.ListTasksRequest(filter=condition, **page_fields)
            response = await self._connection.call(lambda hub: hub.tasks.ListTasks, request)
            return [read(Task, each) for each in response.tasks], response.next_page_token

        return await fetch_pages(fetch_page, limit)

    async def get(self, id: str) -> Task:  # noqa: A002 - the field's name
        """Return one task."""
        response = await self._connection.call(lambda hub: hub.tasks.GetTask, task_pb2.GetTaskRequest(id=id))
        return read(Task, response.task)

    async def result(self, id: str) -> Any:  # noqa: A002
        """Return the MCP result of an ended task. Raises FailedPrecondition (TASK_NOT_FINISHED, TASK_CANCELLED)."""
        response = await self._connection.call(
            lambda hub: hub.tasks.GetTaskResult, task_pb2.GetTaskResultRequest(id=id)
        )
        return read_result(response.result)

    async def cancel(self, id: str) -> Task:  # noqa: A002
        """Cancel a task that has not ended, and return it; its pending requests are withdrawn."""
        response = await self._connection.call(lambda hub: hub.tasks.CancelTask, task_pb2.CancelTaskRequest(id=id))
        return read(Task, response.task)

    def watch(
        self,
        *,
        server: str | None = None,
        role: TaskRole | None = None,
        statuses: Collection[TaskStatus] = (),
        resume_token: str | None = None,
    ) -> AsyncGenerator[WatchEvent[Task], None]:
        """Watch the tasks that match all given conditions: a snapshot, then changes."""
        condition = _task_filter(server, role, statuses)
        return follow_watch(
            self._connection,
            lambda hub: hub.tasks.WatchTasks,
            task_pb2.WatchTasksRequest(filter=condition),
            lambda step: watch_events.read(Task, step),
            resume_token,
        )


def _task_filter(server: str | None, role: TaskRole | None, statuses: Collection[TaskStatus]) -> task_pb2.TaskFilter:
    """Return a filter for tasks that match all given conditions; None and empty ones match all."""
    return task_pb2.TaskFilter(
        server=server or "",
        role=enum_number(task_pb2.TaskRole.DESCRIPTOR, role) if role else task_pb2.TASK_ROLE_UNSPECIFIED,
        statuses=enum_numbers(task_pb2.TaskStatus.DESCRIPTOR, statuses),
    )
