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
from hubbubd.core.tasks import EXTENSION, Task, TaskStatus, on_the_wire
from hubbubd.downstream.calls import call_results
from hubbubd.downstream.calls.observer import CallObserver
from hubbubd.downstream.hosts.host import McpHost, RequestToHost
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.questions.input_rounds import given_answers
from hubbubd.downstream.tasks.host_tasks import HostTasks, ResultRenderer, follows_tasks
from hubbubd.downstream.views.question_policy import judge
from hubbubd.errors import FailedPrecondition, InvalidArgument
from hubbubd.runtime.calls import CallSpec

MAX_TOLD: Final = 1000
"""The most tasks that a host is told of in one stream."""

_ACKNOWLEDGED: Final = b'{"resultType":"complete"}'


class TaskExtension:
    """The calls of hosts that declare the extension, and the methods with which they follow them."""

    def __init__(self, tasks: HostTasks, shown: ResultRenderer) -> None:
        self._tasks = tasks
        self._hub = tasks.hub
        self._shown = shown
        self.methods: dict[str, Callable[[RequestToHost], Awaitable[bytes]]] = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

    async def result(self, exchange: RequestToHost, spec: CallSpec) -> Call | bytes:
        """Make a call; return it once it has ended, or the result that makes it a task. Raises as `Calls.call`."""
        assert spec.call_id is not None, "a host's call has an id"
        principal = exchange.host.principal.name
        following = CallObserver(self._hub, spec.call_id)
        try:
            with self._tasks.present(exchange.host, spec.call_id), following.following():
                running = asyncio.get_running_loop().create_task(self._hub.calls.call(spec, principal))
                try:
                    while True:
                        await asyncio.wait({running, following.news}, return_when=asyncio.FIRST_COMPLETED)
                        following.seen()
                        if running.done():
                            return running.result()
                        if following.open() or self._is_task(spec.call_id):
                            return self._created(exchange.host, await self._hub.calls.start(spec, principal))
                finally:
                    running.cancel()
                    await asyncio.wait({running})
        finally:
            self._tasks.drop(spec.call_id)

    def _is_task(self, call_id: str) -> bool:
        """Return whether a server has made a task of a call."""
        call = self._hub.calls.find(call_id)
        return call is not None and call.task_id is not None

    def _created(self, host: McpHost, call: Call) -> bytes:
        task = self._tasks.as_task(host, call)
        return payload.dumps({"resultType": "task", **_wire(task)})

    @asynccontextmanager
    async def told(
        self, exchange: RequestToHost, tell: Callable[[Mapping[str, Any]], None]
    ) -> AsyncGenerator[list[str]]:
        """Tell a host that listens how far the tasks are that it names; yield the ids of those.

        Raises Refusal and Unavailable.
        """
        host, wanted = exchange.host, exchange.params["notifications"].get("taskIds")
        with ExitStack() as stack:
            honoured: list[str] = []
            task_ids = _ids(wanted) if follows_tasks(host) else []
            await self._tasks.hear_of(task_ids)
            for task_id in task_ids:
                call = self._tasks.known(host, task_id)
                if call is None:
                    continue
                honoured.append(task_id)
                if not call.state.ended:
                    stack.enter_context(self._tasks.present(host, task_id))

                def changed(task: Task) -> None:
                    call = self._hub.calls.get(task.id)
                    tell(cast("dict[str, Any]", payload.loads(self._detailed(exchange, call, {}))))

                stack.enter_context(self._tasks.watched(host, task_id, changed))
            yield honoured

    async def _get(self, exchange: RequestToHost) -> bytes:
        return self._detailed(exchange, await self._found(exchange), {"resultType": "complete"})

    def _detailed(self, exchange: RequestToHost, call: Call, said: dict[str, Any]) -> bytes:
        """Return the extension's DetailedTask, after other members."""
        host = exchange.host
        task = self._tasks.as_task(host, call)
        said |= _wire(task)
        match task.status:
            case TaskStatus.INPUT_REQUIRED:
                said["inputRequests"] = self._tasks.shown(host, call)
            case TaskStatus.FAILED:
                assert call.fault is not None, "a call that has failed has a fault"
                refusal = call_results.of_fault(call.fault)
                said["error"] = {"code": refusal.code, "message": refusal.message}
                if refusal.data is not None:
                    said["error"]["data"] = refusal.data
            case TaskStatus.COMPLETED:
                result = self._shown(exchange, call.server, call.result or b"{}", "tools/call")
                return payload.dumps(said)[:-1] + b',"result":' + result + b"}"
            case _:
                pass
        return payload.dumps(said)

    async def _update(self, exchange: RequestToHost) -> bytes:
        host, call = exchange.host, await self._found(exchange)
        answers, questions = given_answers(exchange), self._tasks.questions
        for request in await questions.found(answers):
            if request.call_id == call.id and request.state is not RequestState.OPEN:
                questions.late(host, request, answers[request.id])
        for request in await self._tasks.answerable(host, call, answers):
            params = payload.loads(request.request)
            took_s = self._tasks.took_s(call, request)
            verdict = judge(questions.policy, request.kind, params, answers[request.id], took_s)
            try:
                await questions.take(host, request.id, verdict)
            except InvalidArgument as exc:
                raise Refusal(INVALID_PARAMS, f"inputResponses.{request.id}: {exc.message}") from None
        return _ACKNOWLEDGED

    async def _cancel(self, exchange: RequestToHost) -> bytes:
        call = await self._found(exchange)
        with suppress(FailedPrecondition):  # it has ended: that is no error here
            await self._hub.calls.cancel(call.id, abort=True)
        return _ACKNOWLEDGED

    async def _found(self, exchange: RequestToHost) -> Call:
        if not follows_tasks(exchange.host):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise Refusal(MISSING_CAPABILITY, f"the request must declare the extension {EXTENSION}", needed)
        call = await self._tasks.find(exchange)
        self._tasks.heard(exchange.host, call)
        return call


def _ids(wanted: object) -> list[str]:
    """Return the ids of the tasks that a host wants to be told of, each once. Raises Refusal."""
    given = cast("list[object]", wanted) if isinstance(wanted, list) else [] if wanted is None else [None]
    ids = [each for each in given if isinstance(each, str)]
    if len(ids) < len(given) or len(ids) > MAX_TOLD:
        raise Refusal(INVALID_PARAMS, f"params.notifications.taskIds must be a list of at most {MAX_TOLD} ids")
    return list(dict.fromkeys(ids))


def _wire(task: Task) -> dict[str, Any]:
    """Return the extension's Task object."""
    said = on_the_wire(task)
    said["ttlMs"] = said.pop("ttl")
    said["pollIntervalMs"] = said.pop("pollInterval")
    return said
