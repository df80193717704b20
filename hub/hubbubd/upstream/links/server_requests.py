"""Serves a server's requests: validated against the revision, passed to the runtime, answered."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

import anyio
import structlog
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CancelTaskRequestParams,
    GetTaskPayloadRequestParams,
    GetTaskRequestParams,
    PaginatedRequestParams,
)
from mcp_types import methods as tables
from pydantic import BaseModel

from hubbubd.config import ServerConfig
from hubbubd.telemetry.trace import trace_of_params
from hubbubd.timing.turns import wait_for_turn
from hubbubd.upstream.deviations import Deviation, describe_deviation
from hubbubd.upstream.messages.exchange import CALL, OUTGOING, SPAN_SCOPE, OutgoingMessage
from hubbubd.upstream.ports import Era, Inbound, InboundRequest, ReplyError
from hubbubd.upstream.protocol.negotiation import TASKS_REVISION, Revision
from hubbubd.upstream.protocol.repair import REPAIRABLE_VALUES, Repairer, ResultFindings, validation_error
from hubbubd.upstream.protocol.schema_check import Mismatch, check, count_values

MAX_OPEN_REQUESTS: Final = 1024
"""The most requests of one server that may be open; more are refused."""

_TASK_PARAMS: Final[Mapping[str, type[BaseModel]]] = {
    "tasks/get": GetTaskRequestParams,
    "tasks/result": GetTaskPayloadRequestParams,
    "tasks/cancel": CancelTaskRequestParams,
    "tasks/list": PaginatedRequestParams,
}

log = structlog.get_logger(__name__)


class ServerRequests:
    """Serves the server's requests on one connection. `get_revision` returns None before the negotiation."""

    def __init__(self, config: ServerConfig, inbound: Inbound, get_revision: Callable[[], Revision | None]) -> None:
        self._config = config
        self._inbound = inbound
        self._get_revision = get_revision
        self._unsettled_answers: set[OutgoingMessage] = set()
        self._open_requests = 0

    async def serve(self, method: str, params: Mapping[str, Any] | None, withdrawn: anyio.Event) -> dict[str, Any]:
        """Return the result for the server. Raises MCPError for an error answer; any other exception becomes -32603."""
        if self._open_requests >= MAX_OPEN_REQUESTS:
            raise MCPError(INTERNAL_ERROR, f"more than {MAX_OPEN_REQUESTS} requests are open")
        self._open_requests += 1
        try:
            return await self._answer_request(method, params, withdrawn)
        except MCPError:
            raise
        except Exception as exc:
            log.exception("server request failed: internal error", server=self._config.name, method=method)
            raise MCPError(INTERNAL_ERROR, "Internal error") from exc
        finally:
            self._open_requests -= 1

    def close(self) -> None:
        """Report all answers under way as not delivered, as the connection has ended."""
        for answer in tuple(self._unsettled_answers):
            answer.settle("the connection closed before the answer was taken")

    async def _answer_request(
        self, method: str, params: Mapping[str, Any] | None, withdrawn: anyio.Event
    ) -> dict[str, Any]:
        """Check a request of the server, have the runtime answer it, and return its result. Raises MCPError."""
        await self._check_request(method, params)
        if method == "ping":
            return {}
        scope = SPAN_SCOPE.get()
        request = InboundRequest(
            method=method,
            params=dict(params or {}),
            call_id=CALL.get(),
            trace=trace_of_params(params or {}) or (scope.trace if scope is not None else None),
            withdrawn=withdrawn.is_set,
        )
        try:
            reply = await self._inbound.on_request(request)
        except ReplyError as refusal:
            self._track_answer(refusal.on_sent)
            raise MCPError(refusal.code, refusal.message, refusal.data) from None
        self._track_answer(reply.on_sent)
        return reply.result

    def _track_answer(self, on_sent: Callable[[str | None], None] | None) -> None:
        """Call `on_sent` once the answer to the request being served was handed over, or cannot be."""
        # No await from here to the write, so the transport finds this exchange in the context.
        answer = OutgoingMessage(awaits_result=False)

        def report_outcome(reason: str | None) -> None:
            """Report to `on_sent` that the answer was handed over (None), or why not."""
            self._unsettled_answers.discard(answer)
            if on_sent is not None:
                on_sent(reason)

        answer.on_settled = report_outcome
        self._unsettled_answers.add(answer)
        OUTGOING.set(answer)

    async def _check_request(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Raise MCPError for a request that revision or configuration do not allow, or with invalid params."""
        revision = self._get_revision()
        # Before negotiation: the newest revision in which servers make requests.
        version = revision.version if revision is not None else TASKS_REVISION
        try:
            if method in _TASK_PARAMS:
                if not self._config.receiver_tasks or version != TASKS_REVISION:
                    raise _method_not_found(method)
                validate = partial(_TASK_PARAMS[method].model_validate, by_name=False)
            elif (revision is not None and revision.era is Era.STATELESS) or not self._is_method_declared(method):
                raise _method_not_found(method)
            else:
                validate = partial(tables.parse_server_request, method, self._defining_revision(method, version))
            await self._validate_params(validate, cast("dict[str, Any]", params or {}))
        except KeyError:
            raise _method_not_found(method) from None
        except Mismatch as exc:
            raise MCPError(INVALID_PARAMS, f"Invalid params: {exc}") from None

    def _defining_revision(self, method: str, version: str) -> str:
        """Return the revision by which to check a request: `version`, or a later one if only that has the method.

        A later one is noted for operators. Some servers choose an older revision, and still send requests that the hub
        has declared to serve (elicitation: 2025-06-18).
        """
        if (method, version) in tables.SERVER_REQUESTS or (method, TASKS_REVISION) not in tables.SERVER_REQUESTS:
            return version
        self._inbound.note(Deviation.ASKED_BEFORE_ITS_TIME, describe_deviation(Deviation.ASKED_BEFORE_ITS_TIME, method))
        return TASKS_REVISION

    async def _validate_params(self, validate: Callable[[dict[str, Any]], object], params: dict[str, Any]) -> None:
        """Validate params, in which an empty list may stand for an empty object. Raises Mismatch, KeyError."""
        try:
            for _ in check(validate, params):
                await wait_for_turn()
        except Mismatch:
            if count_values(params, REPAIRABLE_VALUES) >= REPAIRABLE_VALUES:
                raise
            error = validation_error(validate, params)
            if error is None or not Repairer(validate, members=False).repair(params, error, ResultFindings()):
                raise
            self._inbound.note(Deviation.EMPTY_LIST, describe_deviation(Deviation.EMPTY_LIST))

    def _is_method_declared(self, method: str) -> bool:
        """Return whether the hub has declared that it serves a method, as far as that is configured."""
        return {
            "elicitation/create": self._config.elicitation,
            "sampling/createMessage": self._config.sampling,
        }.get(method, True)


def _method_not_found(method: str) -> MCPError:
    """Return the error for a method that the hub does not serve."""
    return MCPError(METHOD_NOT_FOUND, "Method not found", method)
