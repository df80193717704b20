"""Functions that answer pending requests: of any call (`@hub.on_form()`, run by `hub.serve()`) or one (`on_form=`)."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Literal, TypeVar, cast

from hubbub_client.errors import Unavailable
from hubbub_client.inbox import Inbox
from hubbub_client.options import Answer, CallCallbacks, OnRequest
from hubbub_client.records import PendingRequest, RequestKind
from hubbub_client.work import OnError, log_error

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
class _Registered:
    handler: OnRequest
    kind: RequestKind
    server: str | None


class Handlers:
    """Registered functions, by kind and server."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._registered: list[_Registered] = []

    def on(self, kind: RequestKind, server: str | None) -> Callable[[H], H]:
        """Return a decorator that registers a function for pending requests of a kind, of one server or of all."""

        def register(handler: H) -> H:
            self._registered.append(_Registered(handler, kind, server))
            return handler

        return register

    async def serve(self, *, capacity: int, on_error: OnError | None) -> None:
        """Work until cancelled. Raises ValueError if nothing is registered, HubbubError as `inbox.work`."""
        if not self._registered:
            raise ValueError("no handler is registered; decorate one with on_form, on_page, on_sampling or on_roots")
        working = [asyncio.ensure_future(self._work(each, capacity, on_error)) for each in self._registered]
        try:
            ended, _ = await asyncio.wait(working, return_when=asyncio.FIRST_EXCEPTION)
            for each in ended:
                each.result()
        finally:
            for each in working:
                each.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    async def _work(self, registered: _Registered, capacity: int, on_error: OnError | None) -> None:
        async def handle(request: PendingRequest) -> None:
            await _give(request, await _asked(registered.handler, request))

        await self._inbox.work(
            handle, server=registered.server, kinds=[registered.kind], capacity=capacity, on_error=on_error
        )


class CallAnswers:
    """Callbacks of one call, which answer the pending requests that name the call as their cause."""

    def __init__(self, inbox: Inbox, call_id: str, callbacks: CallCallbacks) -> None:
        self._inbox = inbox
        self._call_id = call_id
        self._by_kind: dict[RequestKind, OnRequest] = {
            kind: found for kind, name in CALLBACKS.items() if (found := callbacks.get(name)) is not None
        }

    @property
    def wanted(self) -> bool:
        """Return whether there is any callback."""
        return bool(self._by_kind)

    async def serve(self, on_listening: Callable[[], None]) -> None:
        """Answer one pending request after the other until cancelled.

        `on_listening` is called once none can be missed. Raises what a callback raises, HubbubError as `inbox.work`,
        and InvalidArgument for an answer that does not fit.
        """

        async def handle(request: PendingRequest) -> None:
            answer = await _asked(self._by_kind[request.kind], request)
            try:
                await _give(request, answer)
            except Unavailable as error:  # the hub assigns it again when it is back
                log_error(request, error)

        await self._inbox.work(
            handle, kinds=[*self._by_kind], call_id=self._call_id, on_error=_raise, on_listening=on_listening
        )


def _raise(_: PendingRequest, error: Exception) -> None:
    raise error


async def _asked(function: OnRequest, request: PendingRequest) -> Answer:
    answer = function(request)
    return await answer if isawaitable(answer) else answer


async def _give(request: PendingRequest, answer: object) -> None:
    """Answer with what a function returned; None if it answered by itself, or leaves the request to others."""
    match answer:
        case None | PendingRequest():
            return
        case True if request.kind in ELICITATION:
            await request.accept()
        case False if request.kind in ELICITATION:
            await request.decline()
        case str() if request.kind == "sampling":
            await request.reply_text(answer)
        case Mapping() if request.kind in ELICITATION:
            await request.accept(cast("Mapping[str, Any]", answer))
        case Mapping():
            await request.reply(cast("Mapping[str, Any]", answer))
        case _:
            raise TypeError(f"a handler of {request.kind} cannot return {type(answer).__name__}")
