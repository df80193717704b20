"""TaskService: tasks of both roles."""

from collections.abc import AsyncGenerator

from hubbub.v1 import task_pb2 as pb
from hubbubd.core.access import Permission
from hubbubd.core.tasks import Task
from hubbubd.rpc.auth import access
from hubbubd.rpc.messages import api_records, pages, requests, watch
from hubbubd.runtime.inbox import Tasks


class TaskService:
    """Implements hubbub.v1.TaskService."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    async def list_tasks(self, request: pb.ListTasksRequest) -> pb.ListTasksResponse:
        """Return a page of tasks, newest first."""
        scope = access.visible_scope()
        task_filter = requests.task_filter(request.filter, scope)
        page, token = pages.page_ordered(
            lambda after: self._tasks.newest(task_filter, pages.age_position(after), pages.is_oldest_first(request)),
            request,
            pages.newest_position,
            api_records.task,
            list_filter=request.filter,
            scope=scope,
        )
        return pb.ListTasksResponse(tasks=page, next_page_token=token)

    async def get_task(self, request: pb.GetTaskRequest) -> pb.GetTaskResponse:
        """Return a task that the caller may see."""
        return pb.GetTaskResponse(task=api_records.task(self._visible_task(request.id)))

    async def get_task_result(self, request: pb.GetTaskResultRequest) -> pb.GetTaskResultResponse:
        """Return the result of a task that has ended. Raises FailedPrecondition for others."""
        return pb.GetTaskResultResponse(result=self._tasks.result(self._visible_task(request.id).id))

    async def cancel_task(self, request: pb.CancelTaskRequest) -> pb.CancelTaskResponse:
        """Cancel a task; a client task is cancelled by its server, which may take a while."""
        task = await self._tasks.cancel(self._visible_task(request.id, Permission.OPERATE).id)
        return pb.CancelTaskResponse(task=api_records.task(task))

    def watch_tasks(self, request: pb.WatchTasksRequest) -> AsyncGenerator[bytes, None]:
        """Stream tasks: snapshot, then changes."""
        events = self._tasks.watch(requests.task_filter(request.filter, access.visible_scope()), request.resume_token)
        return watch.serialize_events(events, pb.WatchTasksResponse, api_records.task, batches=request.allow_batches)

    def _visible_task(self, task_id: str, permission: Permission = Permission.SEE) -> Task:
        """Return a task if the caller has this permission on it. Raises InvalidArgument, NotFound, PermissionDenied."""
        return access.check_task(self._tasks.get(requests.identifier(task_id, "id")), permission)
