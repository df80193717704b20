"""Turns as MCP tasks: in 2025-11-25 where the caller wants one, with the tasks extension from 2026-07-28 on always.

From 2026-07-28 on, a call that is no task may come back with questions ten times only, and an agent may ask more often.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import CLIENT_CAPABILITIES_META_KEY as CAPABILITIES
from mcp_types import INVALID_PARAMS, PaginatedRequestParams, RequestParams, ServerCapabilities, ServerTasksCapability
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from hubbub_acp.faults import AgentFault
from hubbub_acp.sessions.agent_sessions import AgentSessions
from hubbub_acp.sessions.turn import Turn
from hubbub_acp.surface.turn_calls import Context, QuestionAsker, make_elicitation, make_result
from hubbub_acp.values import as_object

EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
REVISION: Final = "2025-11-25"
"""The revision in which a caller decides what is a task."""

TURN_TOOLS: Final = ("start", "continue")
POLLS: Final = ((20.0, 250), (120.0, 1000))
"""Until so many seconds after its beginning, or after an answer, a turn is to be polled every so many ms."""

SLOW_POLL_MS: Final = 5000
"""The interval from then on, in ms: a turn may go on for hours."""

MAX_ANSWERS: Final = 100

TurnBeginner = Callable[[str, Mapping[str, Any]], Awaitable[Turn]]


class _TaskParams(RequestParams):
    """Params that name a task."""

    task_id: str = Field(max_length=200)


class _UpdateParams(_TaskParams):
    """Params of tasks/update."""

    input_responses: dict[str, Any] = Field(max_length=MAX_ANSWERS)


class TurnTasks:
    """The tasks: each is a turn, by its id."""

    def __init__(self, sessions: AgentSessions, begin_turn: TurnBeginner) -> None:
        self._sessions = sessions
        self._begin_turn = begin_turn
        self._background: set[asyncio.Task[Any]] = set()

    def register(self, server: Server[Any]) -> None:
        """Add the extension, the handlers of tasks, and the middleware that makes a call a task, to the server."""
        server.extensions = {**(server.extensions or {}), EXTENSION: {}}
        server.middleware.append(self._create_requested_task)
        server.add_request_handler("tasks/get", _TaskParams, self._get_task)
        server.add_request_handler("tasks/result", _TaskParams, self._wait_for_result)
        server.add_request_handler("tasks/list", PaginatedRequestParams, self._list_tasks)
        server.add_request_handler("tasks/update", _UpdateParams, self._update_task)
        server.add_request_handler("tasks/cancel", _TaskParams, self._cancel_task)

    def declare(self, capabilities: ServerCapabilities) -> None:
        """Declare, for a handshake, that calls of tools can be tasks; drop extensions, which no such revision has."""
        wire: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        capabilities.tasks = ServerTasksCapability.model_validate(wire)
        capabilities.extensions = None

    def has_extension(self, context: Context) -> bool:
        """Return whether the host has the tasks extension."""
        declared = as_object(as_object(context.meta).get(CAPABILITIES))
        return EXTENSION in as_object(declared.get("extensions"))

    def make_task_result(self, turn: Turn) -> dict[str, Any]:
        """Return the result of a call that is a task, from 2026-07-28 on."""
        return {"resultType": "task", **_task_to_extension(turn)}

    def find(self, turn_id: str) -> Turn:
        """Return a turn by its id. Raises MCPError if there is none.

        A turn that an earlier process did not end is returned as one that has failed.
        """
        turn = self._sessions.turns.get(turn_id)
        if turn is not None:
            return turn
        session_id = self._sessions.interrupted.get(turn_id)
        if session_id is None:
            raise MCPError(INVALID_PARAMS, "Task not found")
        turn = Turn(turn_id)
        turn.end(
            fault=AgentFault(
                "TURN_INTERRUPTED",
                f"the process that had this turn has ended, and the turn with it: go on with `continue` in session "
                f"{session_id}",
                session=session_id,
            )
        )
        return turn

    def cancel_later(self, turn: Turn) -> None:
        """Cancel a turn, and do not wait until it has ended."""
        cancelling = asyncio.create_task(self._sessions.cancel_turn(turn))
        self._background.add(cancelling)
        cancelling.add_done_callback(self._background.discard)

    async def _create_requested_task(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Make a call a task if its caller requests one (2025-11-25), and pass on all other requests.

        This is middleware, since the SDK has no such result of a call.
        """
        params = ctx.params or {}
        is_task_requested = ctx.method == "tools/call" and ctx.protocol_version == REVISION and "task" in params
        if not is_task_requested or params.get("name") not in TURN_TOOLS:
            return self._restore_meta(await call_next(ctx))
        arguments = params.get("arguments")
        try:
            turn = await self._begin_turn(str(params["name"]), as_object(arguments))
        except AgentFault as fault:  # the task has failed: its result says why
            turn = Turn()
            turn.end(fault=fault)
            self._sessions.remember_turn(turn)
        notifying = asyncio.create_task(self._notify_of_status(turn, ctx))
        self._background.add(notifying)
        notifying.add_done_callback(self._background.discard)
        return {"task": _task_to_wire(turn)}

    def _restore_meta(self, result: HandlerResult) -> HandlerResult:
        """Return a result with the `_meta` of its questions, which the SDK drops since its models have none there."""
        if isinstance(result, dict) and result.get("resultType") == "input_required":
            turn = self.find(str(result.get("requestState")))
            for key, request in as_object(result.get("inputRequests")).items():
                if key in turn.questions:
                    request["params"]["_meta"] = turn.questions[key].form.params["_meta"]
        return result

    async def _notify_of_status(self, turn: Turn, context: Context) -> None:
        """Notify the host of each status of a task, until the task has ended."""
        sent_status = ""
        with suppress(MCPError, ConnectionError):
            while True:
                wire = _task_to_wire(turn)
                if sent_status != (sent_status := wire["status"]):
                    await context.session._connection.notify("notifications/tasks/status", wire)  # pyright: ignore
                if turn.has_ended:
                    return
                await turn.wait_for_change()

    async def _get_task(self, context: Context, params: _TaskParams) -> dict[str, Any]:
        """Return the state of a task."""
        turn = self.find(params.task_id)
        return _task_to_extension(turn) if context.protocol_version in MODERN_PROTOCOL_VERSIONS else _task_to_wire(turn)

    async def _wait_for_result(self, context: Context, params: _TaskParams) -> dict[str, Any]:
        """Wait for the end of a task and return its result; ask its questions meanwhile. Only 2025-11-25 has this."""
        turn = self.find(params.task_id)
        related = {RELATED_TASK: {"taskId": turn.id}}
        asker = QuestionAsker(turn, context.session, context.request_id, related)
        try:
            while not turn.has_ended:
                asker.ask_new_questions()
                await turn.wait_for_change()
        finally:
            await asker.close()
        result = make_result(turn).model_dump(mode="json", by_alias=True, exclude_none=True)
        return {**result, "_meta": {**result.get("_meta", {}), **related}}

    async def _list_tasks(self, context: Context, params: Any) -> dict[str, Any]:
        """Return all tasks."""
        return {"tasks": [_task_to_wire(turn) for turn in self._sessions.turns.values()]}

    async def _update_task(self, context: Context, params: _UpdateParams) -> dict[str, Any]:
        """Answer questions of a task; ignore an answer to a question that is not open."""
        turn = self.find(params.task_id)
        for key, answer in params.input_responses.items():
            turn.answer(key, as_object(answer))
        await asyncio.sleep(0)  # lets `Turn.ask` take what was answered off the open questions
        return {}

    async def _cancel_task(self, context: Context, params: _TaskParams) -> dict[str, Any]:
        """Cancel a task; do not wait for the end of its turn. Up to 2025-11-25, MCPError is raised for an ended one."""
        turn = self.find(params.task_id)
        is_stateless = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        if turn.has_ended and not is_stateless:
            raise MCPError(INVALID_PARAMS, "the task has ended already")
        if not turn.has_ended:
            turn.is_withdrawn = True
            self.cancel_later(turn)
        return {} if is_stateless else _task_to_wire(turn)


def _task_status(turn: Turn) -> str:
    """Return the status of a task. A turn that ends early for another reason than tasks/cancel has a result."""
    if turn.is_withdrawn:
        return "cancelled"
    if not turn.has_ended:
        return "input_required" if turn.questions else "working"
    return "failed" if turn.fault is not None else "completed"


def _task_to_wire(turn: Turn) -> dict[str, Any]:
    """Return a task of 2025-11-25."""
    status = _task_status(turn)
    message = turn.fault.message if turn.fault is not None else turn.progress_line
    message = "the turn was cancelled" if status == "cancelled" else message
    wire = {
        "taskId": turn.id,
        "status": status,
        "createdAt": turn.created_at,
        "lastUpdatedAt": turn.updated_at,
        "ttl": None,
        "pollInterval": _poll_interval_ms(turn),
    }
    return wire | ({"statusMessage": message} if message else {})


def _task_to_extension(turn: Turn) -> dict[str, Any]:
    """Return a task of the extension, with its questions or its result."""
    wire = _task_to_wire(turn)
    wire["ttlMs"], wire["pollIntervalMs"] = wire.pop("ttl"), wire.pop("pollInterval")
    if wire["status"] == "input_required":
        requests = {key: make_elicitation(question) for key, question in turn.questions.items()}
        dumped = {key: each.model_dump(mode="json", by_alias=True, exclude_none=True) for key, each in requests.items()}
        return wire | {"inputRequests": dumped}
    if wire["status"] in ("completed", "failed"):
        # A call that failed has a result as well, which says so.
        result = make_result(turn).model_dump(mode="json", by_alias=True, exclude_none=True)
        return wire | {"status": "completed", "result": result}
    return wire


def _poll_interval_ms(turn: Turn) -> int:
    """Return how many ms a host is to wait before it asks for the state of a turn again."""
    elapsed_s = asyncio.get_running_loop().time() - turn.resumed_at
    return next((interval_ms for within_s, interval_ms in POLLS if elapsed_s < within_s), SLOW_POLL_MS)
