"""Tasks of hosts by the tasks extension (2026-07-28, SEP-2663).

tools/call ──> result, or a task ──> tasks/get: status, questions, result    tasks/update: answers    tasks/cancel

A call becomes a task as soon as its server makes one of it, or as soon as people are asked. One that needs neither has
its result at once.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.core.jsonrpc import INVALID_PARAMS, MISSING_CAPABILITY
from hubbubd.core.tasks import EXTENSION, Task, TaskStatus, to_wire
from hubbubd.downstream.calls import call_results
from hubbubd.downstream.calls.host_call import HostCall
from hubbubd.downstream.hosts.host import HostRequest, McpHost
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.questions.input_rounds import parse_answers
from hubbubd.downstream.tasks.host_tasks import HostTasks, ResultRenderer
from hubbubd.downstream.views.question_policy import judge_result
from hubbubd.errors import FailedPrecondition, InvalidArgument

MAX_TASKS: Final = 1000
"""The most tasks of which a host is notified in one stream."""

_ACKNOWLEDGED: Final = b'{"resultType":"complete"}'


class TaskExtension:
    """The calls of hosts that declare the extension, and the methods with which hosts follow their tasks."""

    def __init__(self, tasks: HostTasks, render: ResultRenderer) -> None:
        self._tasks = tasks
        self._hub = tasks.hub
        self._render = render
        self.methods: dict[str, Callable[[HostRequest], Awaitable[bytes]]] = {
            "tasks/get": self._get_task,
            "tasks/update": self._update_task,
            "tasks/cancel": self._cancel_task,
        }

    async def run_call(self, host_call: HostCall) -> Call | bytes:
        """Make a call; return the call once it has ended, or a result that names its task. Raises HubError."""
        request, spec, observer = host_call.request, host_call.spec, host_call.observer
        principal = request.host.principal.name
        observer.on_candidate = None  # needed for the hold alone, and a request that becomes a task is not held
        try:
            with self._tasks.keep_present(request.host, host_call.call_id), host_call.report_to_host():
                call_task = asyncio.get_running_loop().create_task(self._hub.calls.call(spec, principal))
                try:
                    while True:
                        await asyncio.wait({call_task, observer.news}, return_when=asyncio.FIRST_COMPLETED)
                        observer.reset_news()
                        if call_task.done():
                            return call_task.result()
                        if observer.open_questions() or self._has_server_task(host_call.call_id):
                            return self._render_created(request.host, await self._hub.calls.start(spec, principal))
                finally:
                    call_task.cancel()
                    await asyncio.wait({call_task})
        finally:
            self._tasks.drop_call(host_call.call_id)

    def _has_server_task(self, call_id: str) -> bool:
        """Return whether a server has made a task of a call."""
        call = self._hub.calls.find(call_id)
        return call is not None and call.task_id is not None

    def _render_created(self, host: McpHost, call: Call) -> bytes:
        """Return the result that names the task which a call is."""
        task = self._tasks.to_task(host, call)
        return payload.dumps({"resultType": "task", **_render_task(task)})

    @asynccontextmanager
    async def notify_of_tasks(
        self, request: HostRequest, notify: Callable[[Mapping[str, Any]], None]
    ) -> AsyncGenerator[list[str]]:
        """Call `notify` during the block with each status of the tasks that a request names.

        Yields the ids of the tasks that are the host's own; others are skipped. Raises Refusal and Unavailable.
        """
        host, requested_ids = request.host, request.params["notifications"].get("taskIds")
        with ExitStack() as stack:
            honoured: list[str] = []
            task_ids = _parse_ids(requested_ids) if host.follows_tasks else []
            await self._tasks.catch_up_on(task_ids)
            for task_id in task_ids:
                call = self._tasks.find_task_call(host, task_id)
                if call is None:
                    continue
                honoured.append(task_id)
                if not call.state.ended:
                    stack.enter_context(self._tasks.keep_present(host, task_id))

                def notify_task(task: Task) -> None:
                    """Notify the host of a task, with its questions or its result."""
                    call = self._hub.calls.get(task.id)
                    notify(cast("dict[str, Any]", payload.loads(self._render_detailed(request, call, {}))))

                stack.enter_context(self._tasks.watch(host, task_id, notify_task))
            yield honoured

    async def _get_task(self, request: HostRequest) -> bytes:
        """Serve `tasks/get`: return the task as it is now, with its questions or its result. Raises Refusal."""
        return self._render_detailed(request, await self._find_call(request), {"resultType": "complete"})

    def _render_detailed(self, request: HostRequest, call: Call, members: dict[str, Any]) -> bytes:
        """Return `members` and the task as the extension's DetailedTask (with questions, result or error), as JSON.

        The task's members are added to `members` itself.
        """
        host = request.host
        task = self._tasks.to_task(host, call)
        members |= _render_task(task)
        match task.status:
            case TaskStatus.INPUT_REQUIRED:
                members["inputRequests"] = self._tasks.render_questions(host, call)
            case TaskStatus.FAILED:
                assert call.fault is not None, "a call that has failed has a fault"
                refusal = call_results.refusal_from_fault(call.fault)
                members["error"] = {"code": refusal.code, "message": refusal.message}
                if refusal.data is not None:
                    members["error"]["data"] = refusal.data
            case TaskStatus.COMPLETED:
                raw_result = call_results.read_tool_result(call, host.revision)
                rendered = self._render(request, call.server, raw_result, "tools/call")
                return payload.dumps(members)[:-1] + b',"result":' + rendered + b"}"
            case _:
                pass
        return payload.dumps(members)

    async def _update_task(self, request: HostRequest) -> bytes:
        """Serve `tasks/update`: accept the host's answers to questions. Raises Refusal for a wrong answer."""
        host, call = request.host, await self._find_call(request)
        answers, questions = parse_answers(request), self._tasks.questions
        for question in await questions.find_questions(answers):
            if question.call_id == call.id and question.state is not RequestState.OPEN:
                questions.note_late_answer(host, question, answers[question.id])
        for question in await self._tasks.find_answerable_questions(host, call, answers):
            params = payload.loads(question.request)
            took_s = self._tasks.shown_for_s(call, question)
            verdict = judge_result(questions.policy, question.kind, params, answers[question.id], took_s)
            try:
                await questions.accept_verdict(host, question.id, verdict)
            except InvalidArgument as exc:
                raise Refusal(INVALID_PARAMS, f"inputResponses.{question.id}: {exc.message}") from None
        return _ACKNOWLEDGED

    async def _cancel_task(self, request: HostRequest) -> bytes:
        """Serve `tasks/cancel`: cancel the call, if it has not ended. Raises Refusal."""
        call = await self._find_call(request)
        with suppress(FailedPrecondition):  # it has ended: that is no error here
            await self._hub.calls.cancel(call.id, abort=True)
        return _ACKNOWLEDGED

    async def _find_call(self, request: HostRequest) -> Call:
        """Return the call of the task that a request names, and note that its host is there. Raises Refusal."""
        if not request.host.follows_tasks:
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise Refusal(MISSING_CAPABILITY, f"the request must declare the extension {EXTENSION}", needed)
        call = await self._tasks.find_call(request)
        self._tasks.note_interest(request.host, call)
        return call


def _parse_ids(value: object) -> list[str]:
    """Return the ids of the tasks that a host subscribes to, each once. Raises Refusal."""
    # A value that is neither a list nor missing becomes a list with a wrong id, which is refused.
    items = cast("list[object]", value) if isinstance(value, list) else [] if value is None else [None]
    ids = [each for each in items if isinstance(each, str)]
    if len(ids) < len(items) or len(ids) > MAX_TASKS:
        raise Refusal(INVALID_PARAMS, f"params.notifications.taskIds must be a list of at most {MAX_TASKS} ids")
    return list(dict.fromkeys(ids))


def _render_task(task: Task) -> dict[str, Any]:
    """Return a task as the extension's Task object, in which two members have other names than in 2025-11-25."""
    members = to_wire(task)
    members["ttlMs"] = members.pop("ttl")
    members["pollIntervalMs"] = members.pop("pollInterval")
    return members
