"""Calls over a restart of the hub: which go on with the next one, and how."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.core import calls as core
from hubbubd.core.calls import Call
from hubbubd.core.inbox import PendingRequest
from hubbubd.core.jsonrpc import INVALID_PARAMS, INVALID_REQUEST
from hubbubd.errors import Category, Fault, PeerError, UpstreamError
from hubbubd.runtime.calls.call_queue import ActiveCall, End, ServerQueue
from hubbubd.runtime.calls.client_tasks import ClientTasks
from hubbubd.runtime.calls.multi_round import Rounds
from hubbubd.runtime.calls.url_elicitation import Consents
from hubbubd.upstream.ports import Era, Hello

log = structlog.get_logger(__name__)


SendAgain = Callable[[dict[str, Any], dict[str, Any]], Awaitable[dict[str, Any]]]
"""Goes on with a call: its own params, and those to send now; returns its result."""


class Resumption:
    """What becomes of the calls that a hub leaves unfinished."""

    def __init__(self, rounds: Rounds, consents: Consents, client_tasks: ClientTasks) -> None:
        self._rounds = rounds
        self._consents = consents
        self._client_tasks = client_tasks

    def obstacle(self, call: Call, config: ServerConfig | None) -> str | None:
        """Why the next hub cannot go on with a call of this server, as the end of a sentence; None when it can."""
        try:
            return core.obstacle(
                call,
                config.fingerprint if config else None,
                resume=config is not None and config.resume,
                task_of=self._client_tasks.fingerprint(call),
                answers_kept=self._rounds.kept(call) is not None,
            )
        except Exception:
            log.exception("a call is not gone on with", call=call.id)
            return "its record does not fit"

    def outlives(self, queue: ServerQueue, active: ActiveCall, fault: Fault | None) -> bool:
        """Whether a call that this hub's stop, and not a `fault`, has broken off is left to the next one."""
        if active.call.task_id is not None:
            return self._client_tasks.outlives(active)
        stopped = fault is None and active.end is End.SHUTTING_DOWN
        return stopped and self.obstacle(active.call, queue.config) is None

    def way_on(
        self, queue: ServerQueue, active: ActiveCall, send_again: SendAgain
    ) -> Callable[[], Awaitable[dict[str, Any]]]:
        """How a call without an obstacle goes on; what it needs of the store is read now."""
        if active.call.task_id is not None:
            return partial(self._client_tasks.resume, queue, active)
        if core.never_sent(active.call):
            return partial(_first_turn, active, send_again)
        return partial(self._next_round, queue, active, self._rounds.kept(active.call) or {}, send_again)

    async def _next_round(
        self, queue: ServerQueue, active: ActiveCall, asked: dict[str, PendingRequest], send_again: SendAgain
    ) -> dict[str, Any]:
        params = payload.loads_message(active.call.params, "params")
        refusal = active.call.rounds.refusal if active.call.rounds else None
        if refusal is not None:
            await self._consents.resume(queue, active, refusal, asked)
            return await send_again(params, params)
        return await send_again(params, await self._rounds.resume(queue, active, params, asked))


async def _first_turn(active: ActiveCall, send_again: SendAgain) -> dict[str, Any]:
    params = payload.loads_message(active.call.params, "params")
    return await send_again(params, params)


def in_order(left: list[Call]) -> list[Call]:
    """The calls that an earlier hub left, as they are to be taken up.

    Those that were sent go to the head of the queue, one after the other; those that were not, to its end.
    """
    by_age = sorted(left, key=lambda call: call.created_at)
    sent = [call for call in by_age if not core.never_sent(call)]
    return [*reversed(sent), *(call for call in by_age if core.never_sent(call))]


def restarted(why: str | None) -> Fault:
    """What a call ends with that the hub before this one left, and that has an obstacle."""
    message = f"the hub was restarted, and the call could not go on: {why}"
    return Fault(code="HUB_RESTARTED", category=Category.CONNECTION, message=message, retryable=True)


def require_rounds(hello: Hello, call: Call) -> None:
    """Raises UpstreamError (RESUME_REJECTED) when the server would not understand the answers that it asked for."""
    if _is_mrtr(call) and hello.era is not Era.STATELESS:
        raise _rejected(f"{call.server} has no multi-round requests any more, it speaks {hello.protocol_version}")


def require_state(call: Call, error: PeerError) -> None:
    """Raises UpstreamError (RESUME_REJECTED) when a server's error says that it does not go on with its state."""
    if _is_mrtr(call) and error.code in (INVALID_REQUEST, INVALID_PARAMS):
        raise _rejected(f"{call.server} does not go on where it asked: {error.message}", error) from error


def _is_mrtr(call: Call) -> bool:
    return call.rounds is not None and call.rounds.refusal is None


def _rejected(message: str, error: PeerError | None = None) -> UpstreamError:
    details = error.details if error is not None else {}
    return UpstreamError(Fault(code="RESUME_REJECTED", category=Category.SERVER, message=message, details=details))
