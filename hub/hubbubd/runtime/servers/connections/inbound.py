"""Routes a server's requests to the inbox, tasks or a configured answer, and its notifications to whom they concern."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import InitVar, dataclass, replace
from typing import Any, Final, cast

import structlog

from hubbubd import payload
from hubbubd.core import tasks as core_tasks
from hubbubd.core.calls.capabilities import can_answer, declared_capabilities
from hubbubd.core.inbox.questions import find_problem
from hubbubd.core.inbox.request_states import CauseSource, Origin, PendingRequest, RequestKind
from hubbubd.core.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from hubbubd.core.tasks import RELATED_TASK
from hubbubd.errors import HubError, NotFound
from hubbubd.redaction import REDACTION
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls import ActiveCall, ClientTasks, Consents, ServerQueue, inbound_request_span, request_kind
from hubbubd.runtime.catalog import ServerCatalog
from hubbubd.runtime.inbox import Authorizations, Inbox, ReceiverTasks, Tasks, authorization_params
from hubbubd.runtime.oversight import Audit
from hubbubd.runtime.servers.events import EventFeed
from hubbubd.runtime.servers.notes import ServerNotes
from hubbubd.runtime.servers.subscriptions import Subscriptions
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import InboundReply, InboundRequest, ReplyError

_WITH_TEXT: Final = ("notifications/message", "notifications/progress", "notifications/tasks/status")
"""Notifications with text of a server, in which known secrets are replaced, as in its stderr."""

log = structlog.get_logger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class ServerInbound:
    """The hub's side of one server's requests and notifications; implements `upstream.ports.Inbound`."""

    name: str
    queue: ServerQueue
    inbox: Inbox
    tasks: Tasks
    client_tasks: ClientTasks
    consents: Consents
    receiver: ReceiverTasks
    clock: Clock
    background: Background
    on_log: Callable[[str, dict[str, Any]], None]
    events: EventFeed
    subscriptions: Subscriptions
    catalog: ServerCatalog
    authorizations: Authorizations
    audit: Audit
    notes: InitVar[ServerNotes]

    def __post_init__(self, notes: ServerNotes) -> None:
        """Have the connection's notes (`upstream.ports.Inbound.note`) go to the server's `notes` as they are."""
        self.note = notes.note

    async def on_request(self, request: InboundRequest) -> InboundReply:
        """Answer a server's request: at once, as a task, or when a person has answered. Raises ReplyError."""
        if request.method.startswith("tasks/"):
            with inbound_request_span(self.queue.tracer, self.name, request):
                return await self.receiver.serve(request.method, request.params)
        kind = request_kind(request.method, request.params)
        if kind is None:
            raise ReplyError(METHOD_NOT_FOUND, "Method not found")
        if (problem := find_problem(kind, request.params)) is not None:
            raise ReplyError(INVALID_PARAMS, f"Invalid params: {problem}")
        if kind is RequestKind.ROOTS and (roots := self.queue.config.roots) != "ask":
            with inbound_request_span(self.queue.tracer, self.name, request):
                return InboundReply(result={"roots": list(roots)})
        related_id = _related_task_id(request.params)
        found = self.client_tasks.find_active(self.name, related_id) if related_id else None
        active, source = (found[0], CauseSource.WIRE) if found else self.queue.find_cause(request.call_id)
        if active is None and request.call_id is not None and not self._wants_task(kind, request):
            raise ReplyError(INTERNAL_ERROR, "the call that this belongs to has ended")
        try:
            reply = await self._open_question(request, kind, active, source, found[1] if found else related_id)
        except HubError as exc:
            raise ReplyError(INTERNAL_ERROR, exc.message) from exc
        return _with_related_task(reply, related_id) if related_id else reply

    async def _open_question(
        self,
        request: InboundRequest,
        kind: RequestKind,
        active: ActiveCall | None,
        source: CauseSource | None,
        task_id: str | None,
    ) -> InboundReply:
        """Put a server's request to people, and return the reply: a task at once, or the answer. Raises ReplyError.

        `active` and `source` are the call that caused the request and how that is known, None if unknown.
        """
        pending = self._make_pending_request(request, kind, active, source, task_id)
        if active is not None and pending.is_cause_certain and not _can_caller_answer(active, kind, request.params):
            raise ReplyError(METHOD_NOT_FOUND, "Method not found: the client did not declare this for its call")
        if self._wants_task(kind, request):
            with inbound_request_span(self.queue.tracer, self.name, request):
                return await self._answer_as_task(request, pending, active)
        return await self._wait_for_answer(request, pending, active)

    def _wants_task(self, kind: RequestKind, request: InboundRequest) -> bool:
        """Return whether a server requests a task for its request, and the hub offers one."""
        return self.queue.config.receiver_tasks and kind is not RequestKind.ROOTS and "task" in request.params

    def on_notification(self, method: str, params: dict[str, Any], call_id: str | None) -> None:
        """Route a notification to events, the catalog, client tasks, subscriptions, and calls that wait for a consent.

        Log messages of a known call also go to that call's watchers.
        """
        self.catalog.handle_notification(method)
        # Methods that are not of MCP, such as codex/event, may have text as well.
        if method in _WITH_TEXT or not method.startswith("notifications/"):
            params = REDACTION.redact_value(params)
        if method == "notifications/message":
            active, _ = self.queue.find_cause(call_id)
            if active is not None:
                call_id = active.call.id
                self.on_log(call_id, params)
        elif method in ("notifications/tasks/status", "notifications/tasks"):
            self.client_tasks.poll_soon(self.name, str(params.get("taskId")))
        elif method == "notifications/resources/updated":
            self.subscriptions.handle_update(self.name, params)
        elif method == "notifications/elicitation/complete":
            self.consents.note_completion(self.name, params.get("elicitationId"))
        self.events.publish(self.name, method, params, call_id)

    def on_stderr(self, line: str) -> None:
        """Publish a line of stderr as an event."""
        self.events.publish_stderr(self.name, line)

    def on_throttled(self, rate: float, unit: str) -> None:
        """Log, publish and audit that a server exceeds its rate limit."""
        line = f"it sends too much: {rate:.15g} {unit} a second are read, and the rest waits at the server"
        log.warning("server throttled", server=self.name, rate=rate, unit=unit)
        self.events.publish_throttling(self.name, line)
        self.audit.note("ThrottleServer", self.name)

    async def authorize(self, url: str, redirect_uri: str, call_id: str | None) -> str:
        """As `upstream.ports.Inbound`: ask a person to visit the authorization URL, as a pending request."""
        active = self.queue.calls.get(call_id) if call_id else None
        request = InboundRequest(method="elicitation/create", params=authorization_params(self.name, url))
        source = CauseSource.WIRE if active else None
        pending = self._make_pending_request(request, RequestKind.ELICITATION_URL, active, source, None)
        pending = replace(pending, origin=Origin.AUTHORIZATION, candidate_call_ids=())
        with self.queue.park_causes(active, pending.id) if active else nullcontext():
            return await self.authorizations.ask(pending, url, redirect_uri)

    def pause_clock(self, call_id: str | None) -> AbstractContextManager[None]:
        """As `upstream.ports.Inbound`: pause the deadlines of a call, or of the catalog's fetches."""
        active = self.queue.calls.get(call_id) if call_id else None
        return self.queue.park_causes(active) if active else self.catalog.deadlines.pause()

    async def _wait_for_answer(
        self, request: InboundRequest, pending: PendingRequest, active: ActiveCall | None
    ) -> InboundReply:
        """Open a pending request, park the calls that caused it, and reply once it is settled. Raises ReplyError."""
        self.inbox.require_capacity(self.name, 1, len(pending.request))  # raises before the causing call is parked
        with self.queue.park_causes(active, pending.id, candidates=pending.candidate_call_ids):
            try:
                await self.client_tasks.open_request(pending)
                settled = await self.inbox.wait(pending.id)
            except BaseException:
                reason = "the server withdrew it" if request.withdrawn() else "the connection to the server was lost"
                self.inbox.abandon(pending.id, reason)
                raise
        return self._make_reply(settled)

    def _make_reply(self, settled: PendingRequest) -> InboundReply:
        """Return the reply with the answer of a settled request. Raises ReplyError."""
        late = self.inbox.is_too_late(settled)

        def on_sent(reason: str | None) -> None:
            """Record whether the answer was delivered; `reason` says why not, None if it was."""
            if reason is None:
                self.inbox.mark_delivered(settled.id, late=late)
            else:
                self.inbox.mark_not_delivered(settled.id, reason)

        if settled.answer is None:
            raise ReplyError(INTERNAL_ERROR, settled.reason or "withdrawn")
        answer = payload.loads(settled.answer.payload)
        if settled.answer.refused:
            raise ReplyError(answer["error"]["code"], answer["error"]["message"], on_sent=on_sent)
        return InboundReply(result=answer, on_sent=on_sent)

    async def _answer_as_task(
        self, request: InboundRequest, pending: PendingRequest, active: ActiveCall | None
    ) -> InboundReply:
        """Reply at once with a task of the hub, whose result is the answer to the pending request."""
        task = self.receiver.new_task(request.params["task"], request.method, pending)
        # The task's ttl also bounds its pending request, as nothing else would end it.
        deadline = core_tasks.expires_at(task)
        task = replace(task, trace=pending.trace)
        question_trace = self.queue.tracer.begin(task.trace, f"ask {pending.kind}")
        pending = replace(pending, origin=Origin.TASK, task_id=task.id, deadline=deadline, trace=question_trace)
        await self.tasks.add(task, pending)
        self.background.start_soon(self._park_until_settled, active, pending)
        return InboundReply(result={"task": core_tasks.to_wire(task)})

    async def _park_until_settled(self, active: ActiveCall | None, pending: PendingRequest) -> None:
        """Park the call that caused a request until the request is settled, or is deleted (NotFound).

        If the cause is not known (`active` is None), all calls that may be the cause are parked.
        """
        if active is not None and active.call.state.ended:
            return  # nothing to park any more
        with self.queue.park_causes(active, pending.id, candidates=pending.candidate_call_ids), suppress(NotFound):
            await self.inbox.wait(pending.id)

    def _make_pending_request(
        self,
        request: InboundRequest,
        kind: RequestKind,
        active: ActiveCall | None,
        source: CauseSource | None,
        task_id: str | None,
    ) -> PendingRequest:
        """Return the pending request for a request of a server, not stored yet; its span begins here."""
        now = self.clock.now()
        return PendingRequest(
            id=f"req_{secrets.token_hex(8)}",
            server=self.name,
            kind=kind,
            origin=Origin.PLAIN,
            request=payload.dumps(request.params),
            created_at=now,
            deadline=now + self.queue.config.find_answer_limit_s(durable=False)
            if self.queue.config.auto_reject_on_timeout
            else None,
            call_id=active.call.id if active else None,
            cause_source=source,
            candidate_call_ids=() if active or request.call_id else self.queue.possible_cause_ids(),
            alone=active is not None and task_id is None and self.queue.works_only_for(active.call.principal),
            principal=active.call.principal if active else None,
            task_id=task_id,
            trace=self.queue.tracer.begin(request.trace or (active.last_span if active else None), f"ask {kind}"),
        )


def _can_caller_answer(active: ActiveCall, kind: RequestKind, params: Mapping[str, Any]) -> bool:
    """Return whether the caller of a call, if it has declared capabilities, can answer this kind of request."""
    declared = declared_capabilities(active.call.params)
    return declared is None or can_answer(declared, kind, params)


def _related_task_id(params: Mapping[str, Any]) -> str | None:
    """Return the task id in a request's `_meta`, None without (2025-11-25, tasks, related task metadata)."""
    value: Any = params
    for key in ("_meta", RELATED_TASK, "taskId"):
        value = cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else None


def _with_related_task(reply: InboundReply, task_id: str) -> InboundReply:
    """Return the reply with the related task in its `_meta` (2025-11-25, tasks, related task metadata)."""
    meta = {**reply.result.get("_meta", {}), RELATED_TASK: {"taskId": task_id}}
    return replace(reply, result={**reply.result, "_meta": meta})
