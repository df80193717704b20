"""Calls of tools that begin turns: how a caller waits for a turn, and how its questions reach people.

Up to 2025-11-25 the server asks with requests of its own while the call waits. From 2026-07-28 on the call returns with
what it asks, and is made again with the answers; `requestState` is the turn's id.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    LOG_LEVEL_META_KEY,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from hubbub_acp.faults import AgentFault
from hubbub_acp.log import log
from hubbub_acp.plain_text import make_line
from hubbub_acp.sessions.turn import Turn, TurnQuestion

PROGRESS_S: Final = 0.25
"""Seconds between two reports of progress, at least."""

ABANDONED_S: Final = 24 * 3600.0
"""Seconds for which a call that was returned with questions may stay away; then they are cancelled."""

PROBLEM_CHARACTERS: Final = 300

Context = ServerRequestContext[Any, Any]


def make_result(turn: Turn) -> CallToolResult:
    """Return the result of a turn that has ended: its fault, or what the agent said and a text for each warning."""
    if turn.fault is not None:
        return make_fault_result(turn.fault)
    result = turn.result or {}
    text = result.get("text") or f"The agent said nothing. Its turn ended: {result.get('stopReason')}"
    texts = [text, *result.get("warnings", ())]
    return CallToolResult(content=[TextContent(type="text", text=each) for each in texts], structured_content=result)


def make_fault_result(fault: AgentFault) -> CallToolResult:
    """Return the result of a call that failed: its message for models and people, its code for programs."""
    text = TextContent(type="text", text=f"{fault.code}: {fault.message}")
    error = {"code": fault.code, "message": fault.message, **fault.details}
    return CallToolResult(content=[text], is_error=True, _meta={"acp/error": error})


def make_elicitation(question: TurnQuestion) -> ElicitRequest:
    """Return a question as a request `elicitation/create` of MCP."""
    return ElicitRequest(params=ElicitRequestFormParams.model_validate(question.form.params, by_name=False))


class QuestionAsker:
    """Sends the questions of a turn to the host as requests of this server; for revisions up to 2025-11-25."""

    def __init__(self, turn: Turn, session: ServerSession, request_id: Any, meta: Mapping[str, Any] | None = None):
        self._turn = turn
        self._session = session
        self._metadata = ServerMessageMetadata(related_request_id=request_id)
        self._meta = meta or {}
        self._asking: set[asyncio.Task[None]] = set()

    def ask_new_questions(self) -> None:
        """Begin to send each new question of the turn to the host; do not wait for answers."""
        for key, question in self._turn.questions.items():
            if not question.is_sent:
                question.is_sent = True
                asking = asyncio.create_task(self._ask(key, question))
                self._asking.add(asking)
                asking.add_done_callback(self._asking.discard)

    async def close(self) -> None:
        """Withdraw the questions that are not answered."""
        for asking in self._asking:
            asking.cancel()
        if self._asking:
            await asyncio.wait(self._asking)

    async def _ask(self, key: str, question: TurnQuestion) -> None:
        """Send a question to the host until it is answered, here or elsewhere; a cancelled one can be sent again."""
        sending = asyncio.create_task(self._send_elicitation(question))
        try:
            await asyncio.wait({sending, question.outcome}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                self._turn.answer(key, sending.result())
        finally:
            question.is_sent = question.outcome.done()
            sending.cancel()

    async def _send_elicitation(self, question: TurnQuestion) -> Mapping[str, Any]:
        """Return the host's answer to a question; a decline if the host cannot be asked."""
        request = make_elicitation(question)
        if self._meta:
            request.params.meta = {**(request.params.meta or {}), **self._meta}  # pyright: ignore
        try:
            answer = await self._session.send_request(request, ElicitResult, metadata=self._metadata)
        except (MCPError, NoBackChannelError, ValueError) as exc:
            log(f"hubbub acp: nobody could be asked, so it counts as declined: {exc}")
            question.problem = make_line(str(exc), PROBLEM_CHARACTERS) or "the host refused"
            return {"action": "decline"}
        return answer.model_dump(mode="json", by_alias=True, exclude_none=True)


async def follow_turn(turn: Turn, context: Context, cancel: Callable[[], Any]) -> CallToolResult:
    """Wait for the end of a turn, ask its questions, and report progress. A call that is cancelled cancels the turn."""
    asker = QuestionAsker(turn, context.session, context.request_id)
    reporting = asyncio.create_task(report_progress(turn, context))
    try:
        while not turn.has_ended:
            asker.ask_new_questions()
            await turn.wait_for_change()
    except asyncio.CancelledError:
        cancel()
        raise
    finally:
        reporting.cancel()
        await asker.close()
    return make_result(turn)


async def wait_for_round(turn: Turn, context: Context) -> CallToolResult | InputRequiredResult:
    """Wait until a turn has ended or asks; return its result or its questions, for revisions from 2026-07-28 on."""
    reporting = asyncio.create_task(report_progress(turn, context))
    try:
        while not turn.has_ended and not turn.questions:
            await turn.wait_for_change()
    finally:
        reporting.cancel()
    if turn.has_ended:
        return make_result(turn)
    asyncio.get_running_loop().call_later(ABANDONED_S, _cancel_open_questions, [*turn.questions.values()])
    requests = {key: make_elicitation(question) for key, question in turn.questions.items()}
    return InputRequiredResult(input_requests=requests, request_state=turn.id)  # pyright: ignore


def _cancel_open_questions(questions: list[TurnQuestion]) -> None:
    """Cancel the questions that are not answered, since no further call has brought answers within ABANDONED_S."""
    for question in questions:
        question.drop(f"the call did not come back within {ABANDONED_S / 3600:g} h")


async def report_progress(turn: Turn, context: Context) -> None:
    """Report what the agent does, at most once in PROGRESS_S: progress for the call, and a line of the log."""
    reported = 0
    with suppress(MCPError, NoBackChannelError):
        while not turn.has_ended:
            if turn.progress != reported:
                reported = turn.progress
                await context.session.report_progress(float(reported), message=turn.progress_line)
                await _log_progress(turn.progress_line, context)
                await asyncio.sleep(PROGRESS_S)
            else:
                await turn.wait_for_change()


async def _log_progress(line: str, context: Context) -> None:
    """Send a line of the log to the host; from 2026-07-28 on, only if this call has asked for lines of this level."""
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        wanted: Any = (context.meta or {}).get(LOG_LEVEL_META_KEY)
        if wanted not in ("debug", "info"):
            return
    params = LoggingMessageNotificationParams(level="info", logger="agent", data=line)
    await context.session.send_notification(LoggingMessageNotification(params=params), context.request_id)
