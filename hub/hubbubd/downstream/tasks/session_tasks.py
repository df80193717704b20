"""Tasks of hosts with a handshake (2025-11-25, basic/utilities/tasks).

tools/call with `task` ──> the task ──> tasks/get    tasks/result: asks the host, then the result    tasks/cancel

Every call of a tool can be a task, as every call of the hub can go on by itself. Where the server carries out the tool
as a task, the hub asks for that.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.jsonrpc import INVALID_PARAMS, REQUEST_CANCELLED
from hubbubd.core.tasks import RELATED_TASK, Task, make_cursor, parse_cursor, to_wire
from hubbubd.downstream.calls import call_results
from hubbubd.downstream.calls.host_call import CallObserver, CallReporter
from hubbubd.downstream.hosts.host import HostRequest, McpHost, RequestSender
from hubbubd.downstream.notifications.session_notifications import SessionNotifications
from hubbubd.downstream.protocol.messages import Refusal, ResponseMessage, make_notification, with_members
from hubbubd.downstream.questions.input_rounds import make_joining_spec
from hubbubd.downstream.questions.question_requests import QuestionRequests
from hubbubd.downstream.tasks.host_tasks import HostTasks, ResultRenderer
from hubbubd.errors import FailedPrecondition
from hubbubd.runtime.calls import CallSpec

PAGE_TASKS: Final = 100
"""Tasks of one page of a list."""


class SessionTasks:
    """The calls that hosts request as tasks, and the methods with which hosts follow these tasks."""

    def __init__(self, tasks: HostTasks, render: ResultRenderer) -> None:
        self._tasks = tasks
        self._hub = tasks.hub
        self._render = render
        self.methods: dict[str, Callable[[HostRequest], Awaitable[bytes]]] = {
            "tasks/get": self._get_task,
            "tasks/result": self._get_result,
            "tasks/list": self._list_tasks,
            "tasks/cancel": self._cancel_task,
        }

    async def start_task(self, request: HostRequest, spec: CallSpec) -> bytes:
        """Start a call as a task, and return the result that names the task. Raises HubError.

        Until the task ends, the session is notified of its status, its progress and its log messages.
        """
        assert spec.call_id is not None, "a host's call has an id"
        host, session = request.host, request.notifications
        request.note_call(spec.call_id)
        self._tasks.note_present(host, spec.call_id)
        try:
            call = await self._hub.calls.start(spec, host.principal.name)
        finally:
            self._tasks.drop_call(spec.call_id)
        task = self._tasks.to_task(host, call)
        if session is not None:

            def notify_status(task: Task) -> None:
                """Notify the session of the status of the task."""
                session.send(make_notification("notifications/tasks/status", to_wire(task)))

            task_request = replace(request, send=partial(_notify_about_task, call.id, session))
            self._tasks.watch_until_ended(
                task, notify_status, self._hub.calls.listen(call.id, CallReporter(task_request).on_event)
            )
        return self.render_created(host, call)

    def render_created(self, host: McpHost, call: Call) -> bytes:
        """Return the result that names the task which a call is."""
        return payload.dumps({"task": to_wire(self._tasks.to_task(host, call))})

    async def _get_task(self, request: HostRequest) -> bytes:
        """Serve `tasks/get`: return the task as it is now. Raises Refusal and Unavailable."""
        call = await self._tasks.find_call(request)
        self._tasks.note_interest(request.host, call)
        return payload.dumps(to_wire(self._tasks.to_task(request.host, call)))

    async def _get_result(self, request: HostRequest) -> bytes:
        """Serve `tasks/result`: wait for the end of the task, and return its result. Raises Refusal, Unavailable."""
        call = await self._tasks.find_call(request)
        ended = call if call.state.ended else await self._wait_for_end(request, call)
        if ended.state is CallState.CANCELLED:
            raise Refusal(REQUEST_CANCELLED, ended.fault.message if ended.fault is not None else "it was cancelled")
        result = call_results.read_tool_result(ended, request.host.revision)
        return _add_task_id(self._render(request, ended.server, result, "tools/call"), call.id)

    async def _wait_for_end(self, request: HostRequest, call: Call) -> Call:
        """Wait until a task has ended, and return its call; meanwhile ask the host the task's questions.

        A cancelled wait does not cancel the task.
        """
        host = request.host
        ask = request.ask and _add_task_to_requests(request.ask, call.id)
        requests = QuestionRequests(self._tasks.questions, replace(request, ask=ask), again=True)
        observer = CallObserver(
            self._hub,
            call.id,
            on_question=requests.update,
            on_candidate=partial(self._tasks.questions.note_host_decision, host),
        )
        with self._tasks.keep_present(host, call.id), observer.observe(call):
            try:
                return await self._hub.calls.call(make_joining_spec(call), host.principal.name)
            finally:
                await requests.close()

    async def _list_tasks(self, request: HostRequest) -> bytes:
        """Serve `tasks/list`: return a page of the tasks of the host's principal. Raises Refusal."""
        host, cursor = request.host, request.params.get("cursor")
        try:
            after = None if cursor is None else parse_cursor(cursor)
        except ValueError:
            raise Refusal(INVALID_PARAMS, "params.cursor is not one of this list's; begin again without it") from None
        calls = list(islice(self._tasks.list_calls(host, after), PAGE_TASKS + 1))
        members: dict[str, Any] = {"tasks": [to_wire(self._tasks.to_task(host, call)) for call in calls[:PAGE_TASKS]]}
        if len(calls) > PAGE_TASKS:
            members["nextCursor"] = make_cursor(calls[PAGE_TASKS - 1])
        return payload.dumps(members)

    async def _cancel_task(self, request: HostRequest) -> bytes:
        """Serve `tasks/cancel`: cancel the call, and return the task. Raises Refusal if it has ended."""
        call = await self._tasks.find_call(request)
        try:
            call = await self._hub.calls.cancel(call.id, abort=True)
        except FailedPrecondition as exc:
            raise Refusal(INVALID_PARAMS, exc.message, {"reason": exc.reason}) from None
        return payload.dumps(to_wire(self._tasks.to_task(request.host, call)))


def _add_task_to_requests(ask: RequestSender, task_id: str) -> RequestSender:
    """Return a sender that sends as `ask` does, and names the task in the `_meta` of each request."""

    async def ask_about_task(
        method: str, params: dict[str, Any], on_late: Callable[[ResponseMessage], None] | None = None
    ) -> ResponseMessage:
        """Send a request to the host that names the task, and return the response."""
        meta: dict[str, Any] = {**(params.get("_meta") or {}), RELATED_TASK: {"taskId": task_id}}
        return await ask(method, {**params, "_meta": meta}, on_late)

    return ask_about_task


def _notify_about_task(task_id: str, session: SessionNotifications, message: bytes) -> None:
    """Send a notification to a session, with the id of the task in its `_meta`."""
    members = cast("dict[str, Any]", payload.loads(message))
    meta: dict[str, Any] = {**(members["params"].get("_meta") or {}), RELATED_TASK: {"taskId": task_id}}
    session.send(make_notification(members["method"], {**members["params"], "_meta": meta}))


def _add_task_id(raw: bytes, task_id: str) -> bytes:
    """Return a result with the id of its task in `_meta`; parsed only if it may have a `_meta`."""
    related = {RELATED_TASK: {"taskId": task_id}}
    if b'"_meta"' not in raw:
        return with_members(raw, _meta=related)
    result = cast("dict[str, Any]", payload.loads(raw))
    meta: dict[str, Any] = {**(result.get("_meta") or {}), **related}
    return payload.dumps({**result, "_meta": meta})
