"""Building blocks of `sync`: each wraps an async method so that the caller's thread waits for it.

They hold for every call: an interrupted wait cancels the work; a forked process gets an error, since it has no
connection; the methods of records wait too; one error is raised, never an exception group.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from inspect import isawaitable
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from hubbub_client import options
from hubbub_client.data.records import PendingRequest, Record
from hubbub_client.data.watch_events import WatchStep
from hubbub_client.errors import FailedPrecondition, HubbubError
from hubbub_client.threads.portal import Portal
from hubbub_client.transport.connection import closed_error, closed_meanwhile_error
from hubbub_client.waits import run_in_thread

S = TypeVar("S")
R = TypeVar("R")
P = ParamSpec("P")
# Keywords that take callbacks. Each callback runs in a thread of its own, so that it may use the hub.
CALLBACKS = options.CALLBACKS | {"on_copied"}
# How long a signal can go unnoticed: one that comes just before a thread begins to wait does not end its wait.
SIGNAL_S = 0.5


class CancellableWork:
    """Work for the loop that can be cancelled at any time, even before it begins there."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self.ended = False

    async def run(self, work: Callable[..., Awaitable[R]], *args: Any) -> R | None:
        """Run the work and return its result; None if `cancel` was called, since no caller waits for it then."""
        self._task = asyncio.current_task()
        try:
            return None if self._cancelled else await work(*args)
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            return None
        finally:
            self.ended = True

    def cancel(self) -> None:
        """Cancel the work, or prevent its start. Must be called on the loop."""
        self._cancelled = True
        if self._task is not None and not self.ended:
            self._task.cancel()


class LoopRunner:
    """Runs work on the event loop of one `connect`, for the process that owns the loop."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        self._process = os.getpid()

    @property
    def is_own_process(self) -> bool:
        """Return whether this is the process that connected."""
        return os.getpid() == self._process

    def wait_for(self, work: Callable[..., Awaitable[R]], *args: Any) -> R:
        """Run the work on the loop and return its result. Raises HubbubError, and what its callbacks raise."""
        if not self.is_own_process:
            raise FailedPrecondition(
                "this process was forked after the connection was made; connect again in this process", reason="FORKED"
            )
        if threading.get_ident() == self._portal.thread:
            raise FailedPrecondition(
                "this callback runs on the event loop that would have to respond, so it would wait for itself; a plain "
                "function that is given to a call can use the hub",
                reason="WOULD_WAIT_FOR_ITSELF",
            )
        cancellable = CancellableWork()
        try:
            try:
                future = self._portal.start(cancellable.run, work, *args)
            except RuntimeError:
                raise closed_error() from None
            return cast("R", self.to_sync(_wait_heeding_signals(future)))
        except CancelledError:
            raise closed_meanwhile_error() from None
        except BaseExceptionGroup as group:
            raise first_error(group) from None
        finally:
            # A signal ended the wait, perhaps during the hand-over, before there was a future to cancel.
            if not cancellable.ended:
                with suppress(RuntimeError):  # the loop ended, and the work with it
                    self._portal.loop.call_soon_threadsafe(cancellable.cancel)

    def to_sync(self, value: Any) -> Any:
        """Return a value of the library with each PendingRequest as a SyncPendingRequest, also in lists and events."""
        match value:
            case SyncPendingRequest():
                return value
            case PendingRequest():
                record_fields = {each.name: getattr(value, each.name) for each in fields(value)}
                return SyncPendingRequest(**record_fields, _runner=self)
            case list():
                return [self.to_sync(each) for each in cast("list[Any]", value)]
            case tuple():
                return tuple(self.to_sync(each) for each in cast("tuple[Any, ...]", value))
            case WatchStep() | Record() if is_dataclass(value):
                values = {each.name: getattr(value, each.name) for each in fields(value)}
                converted = {
                    name: self.to_sync(old) for name, old in values.items() if isinstance(old, (Record, tuple))
                }
                return (
                    replace(value, **converted)
                    if any(converted[name] is not values[name] for name in converted)
                    else value
                )
            case _:
                return value

    def wrap_callback(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Return a coroutine function that calls `function` in a thread, with each argument converted by `to_sync`."""

        async def call_in_thread(*args: Any) -> Any:
            """Call the function in a thread; if it returns an awaitable, await that on the loop."""
            result = await run_in_thread(function, *map(self.to_sync, args))
            return await result if isawaitable(result) else result

        return call_in_thread


def _wait_heeding_signals(future: "Future[R]") -> R:
    """Return the result of a future, and let signal handlers run during the wait.

    The wait is for a queue, which is written in C, so that an interrupt leaves no lock behind.
    """
    done: SimpleQueue[object] = SimpleQueue()
    future.add_done_callback(done.put)
    while not future.done():
        with suppress(Empty):
            done.get(timeout=SIGNAL_S)
    return future.result()


def _make_blocking_answer(method: Callable[..., Awaitable[PendingRequest]]) -> Any:
    """Return a method of SyncPendingRequest that calls this async method, and waits for its result."""

    def answer_and_wait(request: "SyncPendingRequest", *args: Any, **kwargs: Any) -> PendingRequest:
        """Answer the request, and wait for the result. Raises RuntimeError for a record that comes from no hub."""
        if request.runner is None:
            raise RuntimeError("this record does not come from a hub")
        return request.runner.wait_for(partial(method, request, *args, **kwargs))

    answer_and_wait.__name__, answer_and_wait.__doc__ = method.__name__, method.__doc__
    return answer_and_wait


@dataclass(frozen=True, kw_only=True)
class SyncPendingRequest(PendingRequest):
    """As `PendingRequest`, but each of its methods waits, and returns a SyncPendingRequest."""

    _runner: LoopRunner | None = field(default=None, repr=False, compare=False)

    @property
    def runner(self) -> LoopRunner | None:
        """Return the runner of the record's methods; None if it does not come from a hub."""
        return self._runner

    accept = _make_blocking_answer(PendingRequest.accept)
    decline = _make_blocking_answer(PendingRequest.decline)
    cancel = _make_blocking_answer(PendingRequest.cancel)
    reply_text = _make_blocking_answer(PendingRequest.reply_text)
    reply = _make_blocking_answer(PendingRequest.reply)
    reject = _make_blocking_answer(PendingRequest.reject)
    approve = _make_blocking_answer(PendingRequest.approve)
    deny = _make_blocking_answer(PendingRequest.deny)


def first_error(error: BaseException) -> BaseException:
    """Return one error of an exception group to raise instead; an error that is no group is returned as it is.

    That is the first HubbubError directly in the group; else the group's first error. If the first error is a group
    too, one of its errors is chosen in the same way.
    """
    while isinstance(error, BaseExceptionGroup):
        exceptions = cast("BaseExceptionGroup[BaseException]", error).exceptions
        error = next((each for each in exceptions if isinstance(each, HubbubError)), exceptions[0])
    return error


class Facade(Generic[S]):
    """A part of the library, for threads without an event loop."""

    def __init__(self, runner: LoopRunner, part: S) -> None:
        self._runner = runner
        self._part = part

    @property
    def runner(self) -> LoopRunner:
        """Return the runner of this part's methods."""
        return self._runner

    def wrap_callbacks(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return a method's keywords with its callbacks wrapped for the library."""
        return {
            name: self._runner.wrap_callback(value) if name in CALLBACKS and value is not None else value
            for name, value in keywords.items()
        }

    def wait_for(self, work: Callable[[S], Awaitable[R]]) -> R:
        """Run the work on the library's part and return its result."""
        return self._runner.wait_for(work, self._part)


def make_blocking(method: Callable[Concatenate[S, P], Awaitable[R]]) -> Callable[Concatenate[Facade[S], P], R]:
    """Return an async method of the library as a method of a Facade, which waits for the result."""

    def call_and_wait(facade: Facade[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the async method on the loop, with its callbacks wrapped, and wait for the result."""
        wrapped = facade.wrap_callbacks(kwargs)
        return facade.wait_for(lambda part: cast("Any", method)(part, *args, **wrapped))

    call_and_wait.__name__, call_and_wait.__doc__ = method.__name__, method.__doc__
    return call_and_wait


def make_iterating(
    method: Callable[Concatenate[S, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[Facade[S], P], Generator[R, None, None]]:
    """Return a watch of the library as a method of a Facade, which waits for each event that it yields.

    Closing the iterator ends the watch.
    """

    def iterate(facade: Facade[S], /, *args: P.args, **kwargs: P.kwargs) -> Generator[R, None, None]:
        """Start the watch on the loop, yield its events, and end it with the iterator."""
        wrapped = facade.wrap_callbacks(kwargs)

        iterator_lock = asyncio.Lock()  # held by what uses `events`: an interrupted next_event may still be ending

        async def start_watch(part: S) -> AsyncGenerator[R, None]:
            """Return the watch, which is made on the loop and begins with its first event."""
            return cast("Any", method)(part, *args, **wrapped)

        async def next_event(_: S) -> tuple[R, ...]:
            """Return the next event alone in a tuple, which is empty at the end."""
            async with iterator_lock:
                async for event in events:
                    return (event,)
            return ()

        async def close_watch(_: S) -> None:
            """End the watch, once an interrupted next_event has ended."""
            async with iterator_lock:
                await events.aclose()

        events = facade.wait_for(start_watch)
        try:
            while next_events := facade.wait_for(next_event):
                yield next_events[0]
        finally:
            with suppress(HubbubError):  # closed or forked: the watch has ended with its connection
                facade.wait_for(close_watch)

    iterate.__name__, iterate.__doc__ = method.__name__, method.__doc__
    return iterate


def make_request_blocking(
    method: Callable[Concatenate[S, P], Awaitable[PendingRequest]],
) -> Callable[Concatenate[Facade[S], P], SyncPendingRequest]:
    """As `make_blocking`, typed for a method that returns a pending request."""
    return cast("Any", make_blocking(method))


def make_requests_blocking(
    method: Callable[Concatenate[S, P], Awaitable[Sequence[PendingRequest]]],
) -> Callable[Concatenate[Facade[S], P], Sequence[SyncPendingRequest]]:
    """As `make_blocking`, typed for a method that returns several pending requests."""
    return cast("Any", make_blocking(method))
