"""Resumption of calls after a restart: which ones can go on, and how."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from hubbubd.config import ServerConfig
from hubbubd.core.approvals.requests import approved_params
from hubbubd.core.calls import call_states as core
from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.core.jsonrpc import INVALID_PARAMS, INVALID_REQUEST
from hubbubd.errors import Category, Fault, PeerError, UpstreamError
from hubbubd.runtime.calls.approvals.gate import ApprovalGate
from hubbubd.runtime.calls.queue import ActiveCall, End, ServerQueue
from hubbubd.runtime.calls.rounds.multi_round import MultiRound
from hubbubd.runtime.calls.rounds.url_elicitation import Consents
from hubbubd.runtime.calls.tasks.client_tasks import ClientTasks
from hubbubd.runtime.ownership import Takeover
from hubbubd.upstream.ports import Era, Hello

log = structlog.get_logger(__name__)

SendAgain = Callable[[dict[str, Any], dict[str, Any]], Awaitable[dict[str, Any]]]
"""Sends a call, given its own params and those to send now, and returns the result."""


class Resumption:
    """Decides which of the calls that a hub leaves unfinished the next one resumes, and how."""

    def __init__(self, gate: ApprovalGate, rounds: MultiRound, consents: Consents, client_tasks: ClientTasks) -> None:
        self._gate = gate
        self._rounds = rounds
        self._consents = consents
        self._client_tasks = client_tasks

    def find_obstacle(self, call: Call, config: ServerConfig | None) -> str | None:
        """Return why a call cannot be resumed, as the end of a sentence; None if it can be. No `config`: no server."""
        try:
            return core.find_obstacle(
                call,
                config.fingerprint if config else None,
                resume=config is not None and config.resume,
                task_fingerprint=self._client_tasks.server_fingerprint(call),
                has_answers=self._has_answers(call),
            )
        except Exception:
            log.exception("call not resumed: internal error", call=call.id)
            return "its record does not fit"

    def _has_answers(self, call: Call) -> bool:
        """Return whether the store still has the questions that a call waits for, and their answers."""
        return self._gate.has_question(call) if core.is_held(call) else self._rounds.stored_requests(call) is not None

    def is_left_to_resume(self, queue: ServerQueue, active: ActiveCall, fault: Fault | None) -> bool:
        """Return whether a call that shutdown has broken off, not a `fault`, is left for the next hub to resume."""
        if active.call.task_id is not None:
            return self._client_tasks.outlives_hub(active)
        was_stopped = fault is None and active.end is End.SHUTTING_DOWN
        return was_stopped and self.find_obstacle(active.call, queue.config) is None

    def prepare(
        self, queue: ServerQueue, active: ActiveCall, send_again: SendAgain
    ) -> Callable[[], Awaitable[dict[str, Any]]]:
        """Return a function that continues a call which can be resumed.

        The records that the function needs are read now, before retention may delete them.
        """
        if active.call.task_id is not None:
            return partial(self._client_tasks.resume, queue, active)
        if core.was_never_sent(active.call):
            return partial(_send_unsent, active, send_again)
        requests = self._rounds.stored_requests(active.call) or {}
        return partial(self._resume_round, queue, active, requests, send_again)

    async def _resume_round(
        self, queue: ServerQueue, active: ActiveCall, requests: dict[str, PendingRequest], send_again: SendAgain
    ) -> dict[str, Any]:
        """Wait for the answers to the `requests` of a call's round, send the call again, and return its result."""
        params = approved_params(active.call)
        refusal = active.call.rounds.refusal if active.call.rounds else None
        if refusal is not None:  # a round of error -32042: the call is sent again as it was
            await self._consents.resume(queue, active, refusal, requests)
            return await send_again(params, params)
        return await send_again(params, await self._rounds.resume(queue, active, params, requests))


async def _send_unsent(active: ActiveCall, send_again: SendAgain) -> dict[str, Any]:
    """Send a call that was never sent, and return its result."""
    params = approved_params(active.call)
    return await send_again(params, params)


def resumption_order(unfinished: list[Call]) -> list[Call]:
    """Return calls from before a restart in the order in which to resume them.

    A call that was sent is put at the head of its queue, so the newest of these comes first. An unsent one is put at
    the end, so the oldest of these comes first.
    """
    by_age = sorted(unfinished, key=lambda call: call.created_at)
    sent = [call for call in by_age if not core.was_never_sent(call)]
    return [*reversed(sent), *(call for call in by_age if core.was_never_sent(call))]


def lost_fault(takeover: Takeover, obstacle: str | None) -> Fault:
    """Return the fault of a call that could not be resumed after a takeover; `obstacle` is the end of its message."""
    message = f"{takeover.event_text}, and the call could not go on: {obstacle}"
    return Fault(code=takeover.code, category=Category.CONNECTION, message=message, retryable=True)


def require_multi_round_support(hello: Hello, call: Call) -> None:
    """Raise UpstreamError (RESUME_REJECTED) if the server no longer speaks the protocol of the answers it asked for."""
    if _is_mrtr(call) and hello.era is not Era.STATELESS:
        raise _rejection_error(
            f"{call.server} has no multi-round requests any more, it speaks {hello.protocol_version}"
        )


def require_accepted_state(call: Call, error: PeerError) -> None:
    """Raise UpstreamError (RESUME_REJECTED) if the server's error means that it rejects its own requestState."""
    if _is_mrtr(call) and error.code in (INVALID_REQUEST, INVALID_PARAMS):
        raise _rejection_error(f"{call.server} does not go on where it asked: {error.message}", error) from error


def _is_mrtr(call: Call) -> bool:
    """Return whether a call is in a multi-round request of 2026-07-28, not in the rounds of error -32042."""
    return call.rounds is not None and call.rounds.refusal is None


def _rejection_error(message: str, error: PeerError | None = None) -> UpstreamError:
    """Return the error of a resumed call that its server refuses to continue (RESUME_REJECTED)."""
    details = error.details if error is not None else {}
    return UpstreamError(Fault(code="RESUME_REJECTED", category=Category.SERVER, message=message, details=details))
