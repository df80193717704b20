"""Watches that resume by themselves after a broken stream or a restart of the hub."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol, Self, TypeVar

from grpc import StatusCode, aio

from hubbub_client.errors import HubbubError, ResourceExhausted, Unauthenticated, UpstreamError
from hubbub_client.transport.channel import Stubs
from hubbub_client.transport.connection import HubConnection

FIRST_PAUSE_S = 0.1
LAST_PAUSE_S = 2.0
# Statuses after which a retry cannot help.
FINAL = frozenset(
    (
        StatusCode.INVALID_ARGUMENT,
        StatusCode.UNAUTHENTICATED,
        StatusCode.PERMISSION_DENIED,
        StatusCode.UNIMPLEMENTED,
        StatusCode.NOT_FOUND,
        StatusCode.FAILED_PRECONDITION,
        StatusCode.OUT_OF_RANGE,
    )
)


class WatchRequest(Protocol):
    """The request of a resumable watch."""

    resume_token: str
    allow_batches: bool


class WatchResponse(Protocol):
    """A response of a resumable watch: one step, or a batch of them."""

    resume_token: str

    @property
    def batch(self) -> Sequence[Self]: ...


Q = TypeVar("Q", bound=WatchRequest)
A = TypeVar("A", bound=WatchResponse)
L = TypeVar("L")
E = TypeVar("E")


async def follow_watch(
    connection: HubConnection,
    method: Callable[[Stubs], aio.UnaryStreamMultiCallable[Q, A]],
    request: Q,
    parse: Callable[[A], E | None],
    resume_token: str | None,
) -> AsyncGenerator[E, None]:
    """Yield the events of a watch without end; after a break, resume from the last token.

    `request` is the RPC's request; its token is set here. `parse` returns the event of a response, None to leave it
    out. Raises HubbubError only if a retry cannot help.
    """
    request.resume_token, request.allow_batches = resume_token or "", True
    async with contextlib.aclosing(follow_stream(connection, lambda: connection.stream(method, request))) as responses:
        async for response in responses:
            connection.note_resume_token(response.resume_token)
            for step in response.batch or (response,):
                request.resume_token = step.resume_token or request.resume_token
                event = parse(step)
                if event is not None:
                    yield event


async def follow_stream(
    connection: HubConnection, stream: Callable[[], AsyncGenerator[L, None]]
) -> AsyncGenerator[L, None]:
    """Yield the responses of a stream without end; after a break, open the stream again.

    Raises HubbubError only if a retry cannot help.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            async with contextlib.aclosing(stream()) as steps:
                async for step in steps:
                    pause_s = FIRST_PAUSE_S
                    yield step
        except HubbubError as error:
            if not (isinstance(error, Unauthenticated) and await connection.refresh_if_found()):
                error = connection.explain_refusal(error)
                if _is_final(error):
                    raise error from None
        await asyncio.sleep(random.uniform(pause_s / 2, pause_s))  # noqa: S311 - jitter, not a secret
        pause_s = min(2 * pause_s, LAST_PAUSE_S)


def _is_final(error: HubbubError) -> bool:
    """Return whether a stream that failed with this error would fail again."""
    # Without a reason of the hub, gRPC in this process refused a message as too large.
    is_too_large = isinstance(error, ResourceExhausted) and error.reason == StatusCode.RESOURCE_EXHAUSTED.name
    # UNKNOWN without a reason means that the connection broke; with one, it is the MCP server's own error.
    is_refused = isinstance(error, UpstreamError) and error.reason != StatusCode.UNKNOWN.name
    return error.code in FINAL or is_too_large or is_refused
