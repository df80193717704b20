"""Handlers: functions that answer what servers ask (`@hub.on_elicitation()`), run by `hub.serve()`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from hubbub_client.inbox import Inbox
from hubbub_client.records import PendingRequest, RequestKind
from hubbub_client.work import OnError

Handler = Callable[[PendingRequest], Awaitable[object]]
H = TypeVar("H", bound=Handler)

ELICITATION: tuple[RequestKind, ...] = ("elicitation_form", "elicitation_url")


@dataclass(frozen=True)
class _Registered:
    handler: Handler
    kinds: tuple[RequestKind, ...]
    server: str | None


class Handlers:
    """What is registered, by kind and server."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._registered: list[_Registered] = []

    def on(self, kinds: Sequence[RequestKind], server: str | None) -> Callable[[H], H]:
        """Registers the decorated function for requests of these kinds, of one server or of all."""

        def register(handler: H) -> H:
            self._registered.append(_Registered(handler, tuple(kinds), server))
            return handler

        return register

    async def serve(self, *, capacity: int, on_error: OnError | None) -> None:
        """Works until cancelled. Raises ValueError when nothing is registered, HubbubError as `inbox.work`."""
        if not self._registered:
            raise ValueError("no handler is registered; decorate one with on_elicitation, on_sampling or on_roots")
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
            await _give(request, await registered.handler(request))

        await self._inbox.work(
            handle, server=registered.server, kinds=registered.kinds, capacity=capacity, on_error=on_error
        )


async def _give(request: PendingRequest, answer: object) -> None:
    """Makes an answer of what a handler returned; None means that it has answered itself, or leaves it to others."""
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
