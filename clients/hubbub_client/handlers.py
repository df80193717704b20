"""Functions that answer pending requests: of any call (`@hub.on_form()`, run by `hub.serve()`) or one (`on_form=`)."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Literal, TypeVar, cast

from hubbub.v1 import inbox_pb2
from hubbub_client.data.conversion import enum_numbers
from hubbub_client.data.records import PendingRequest, RequestKind
from hubbub_client.errors import Unavailable
from hubbub_client.options import Answer, CallCallbacks, OnRequest
from hubbub_client.services.inbox import Inbox
from hubbub_client.transport.call_stream import CallStream, Kinds, Step
from hubbub_client.transport.connection import HubConnection
from hubbub_client.worker import Assignments, OnError, log_error, run_in_task_group

H = TypeVar("H", bound=OnRequest)

ELICITATION: tuple[RequestKind, ...] = ("elicitation_form", "elicitation_url")
CALLBACKS: Mapping[RequestKind, Literal["on_form", "on_page", "on_sampling", "on_roots"]] = {
    "elicitation_form": "on_form",
    "elicitation_url": "on_page",
    "sampling": "on_sampling",
    "roots": "on_roots",
}
"""Name of the callback for each kind of pending request."""


@dataclass(frozen=True)
class _Registration:
    """A function, and the pending requests that it answers; `server` None means those of all servers."""

    handler: OnRequest
    kind: RequestKind
    server: str | None


class Handlers:
    """Registered functions, by kind and server."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._registrations: list[_Registration] = []

    def on(self, kind: RequestKind, server: str | None) -> Callable[[H], H]:
        """Return a decorator that registers a function for pending requests of a kind, of one server or of all."""

        def register(handler: H) -> H:
            """Register a function, and return it unchanged."""
            self._registrations.append(_Registration(handler, kind, server))
            return handler

        return register

    async def serve(self, *, capacity: int, on_error: OnError | None) -> None:
        """Answer pending requests with the registered functions until cancelled.

        Raises ValueError if nothing is registered, HubbubError as `inbox.work`.
        """
        if not self._registrations:
            raise ValueError(
                "no handler is registered; decorate one with on_form, on_page, on_sampling, on_roots or on_approval"
            )
        workers = [asyncio.ensure_future(self._work(each, capacity, on_error)) for each in self._registrations]
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
            for each in done:
                each.result()
        finally:
            for each in workers:
                each.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self, registration: _Registration, capacity: int, on_error: OnError | None) -> None:
        """Run one of the hub's workers for a registered handler, until cancelled."""

        async def handle(request: PendingRequest) -> None:
            """Answer a pending request with what the registered function returns for it."""
            await _answer_with(request, await _call_handler(registration.handler, request))

        await self._inbox.work(
            handle, server=registration.server, kinds=[registration.kind], capacity=capacity, on_error=on_error
        )


class CallAnswers:
    """Callbacks of one call, which answer the pending requests that name the call as their cause."""

    def __init__(self, inbox: Inbox, call_id: str, callbacks: CallCallbacks) -> None:
        self._inbox = inbox
        self._call_id = call_id
        self._by_kind: dict[RequestKind, OnRequest] = {
            kind: callback for kind, name in CALLBACKS.items() if (callback := callbacks.get(name)) is not None
        }

    @property
    def has_callbacks(self) -> bool:
        """Return whether there is any callback."""
        return bool(self._by_kind)

    @property
    def kinds(self) -> Kinds:
        """Return the kinds that have a callback, as the API numbers them."""
        return tuple(enum_numbers(inbox_pb2.PendingRequestKind.DESCRIPTOR, [*self._by_kind]))

    async def serve(self, on_listening: Callable[[], None]) -> None:
        """Answer one pending request after the other until cancelled.

        `on_listening` is called once no pending request can be missed. Raises what a callback raises, HubbubError as
        `inbox.work`, and InvalidArgument for an answer that does not fit.
        """

        await self._inbox.work(
            self.handle, kinds=[*self._by_kind], call_id=self._call_id, on_error=_raise_error, on_listening=on_listening
        )

    async def handle(self, request: PendingRequest) -> None:
        """Answer a pending request by the callback of its kind. Raises what the callback raises, and HubbubError.

        Unavailable is logged instead.
        """
        answer = await _call_handler(self._by_kind[request.kind], request)
        try:
            await _answer_with(request, answer)
        except Unavailable as error:  # others may answer it when the hub is back
            log_error(request, error)


class StreamedAnswers:
    """The callbacks of one call, for pending requests that come over the stream that carries the call."""

    def __init__(self, connection: HubConnection, answers: CallAnswers) -> None:
        self._connection = connection
        self._assignments = Assignments(answers.handle, _raise_error)
        self._steps: asyncio.Queue[tuple[CallStream, Step]] = asyncio.Queue()
        self._current_call: tuple[CallStream, int] | None = None
        """The stream that the call was last made on, and its id there."""

    def receive_step(self, stream: CallStream, step: Step) -> None:
        """Queue a step of the call's stream that assigns or revokes a pending request; ignore other steps."""
        if step.HasField("assigned") or step.HasField("revoked"):
            self._steps.put_nowait((stream, step))

    async def serve(self) -> None:
        """Answer pending requests of the call until cancelled. Raises what a callback raises, and HubbubError."""
        await run_in_task_group(self._serve)

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        """Start and cancel handlers as the hub assigns and revokes requests of the call."""
        while True:
            stream, step = await self._steps.get()
            if (stream, step.id) != self._current_call:  # made again after a break, which ended earlier requests
                self._assignments.cancel_all()
                self._current_call = stream, step.id
            if step.HasField("assigned"):
                inbox = _StreamedInbox(self._connection, stream, step.id)
                self._assignments.start(tasks, inbox.read_request(step.assigned), inbox.skip)
            else:
                self._assignments.revoke(step.revoked)


class _StreamedInbox(Inbox):
    """The inbox of one pending request of a call: the answer goes over the stream that brought the request."""

    def __init__(self, connection: HubConnection, stream: CallStream, call: int) -> None:
        super().__init__(connection)
        self._stream = stream
        self._call = call
        self._accepted = False

    def read_request(self, message: inbox_pb2.PendingRequest) -> PendingRequest:
        """Return the record of a pending request; its answer goes over this stream."""
        return self._read_request(message)

    async def _send_answer(
        self, request: inbox_pb2.AnswerPendingRequestRequest
    ) -> inbox_pb2.AnswerPendingRequestResponse:
        """Send an answer over the stream, and remember that the hub has accepted it. Raises HubbubError."""
        response = await self._connection.answer(self._stream, request)
        self._accepted = True
        return response

    async def skip(self, id_: str) -> None:
        """Leave the pending request to other clients, unless the hub has accepted an answer."""
        if not self._accepted:
            self._stream.skip(self._call, id_)


def _raise_error(_: PendingRequest, error: Exception) -> None:
    """Raise the error of a handler: an `on_error` for the callbacks of a call."""
    raise error


async def _call_handler(function: OnRequest, request: PendingRequest) -> Answer:
    """Call a handler, and await its result if it is a coroutine function."""
    answer = function(request)
    return await answer if isawaitable(answer) else answer


async def _answer_with(request: PendingRequest, answer: object) -> None:
    """Answer with the value that a handler returned; send nothing for None or a PendingRequest.

    Those two mean that the handler has answered by itself, or leaves the request to others. Raises TypeError for a
    value that is no answer to this kind of request, and as `Inbox.answer`.
    """
    match answer:
        case None | PendingRequest():
            return
        case True if request.kind in ELICITATION:
            await request.accept()
        case False if request.kind in ELICITATION:
            await request.decline()
        case True if request.kind == "approval":
            await request.approve()
        case False if request.kind == "approval":
            await request.deny()
        case str() if request.kind == "approval":
            await request.deny(answer)
        case Mapping() if request.kind == "approval":
            await request.approve(cast("Mapping[str, Any]", answer))
        case str() if request.kind == "sampling":
            await request.reply_text(answer)
        case Mapping() if request.kind in ELICITATION:
            await request.accept(cast("Mapping[str, Any]", answer))
        case Mapping():
            await request.reply(cast("Mapping[str, Any]", answer))
        case _:
            raise TypeError(f"a handler of {request.kind} cannot return {type(answer).__name__}")
