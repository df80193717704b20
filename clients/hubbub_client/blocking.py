"""How a program without an event loop uses the library: each method waited for in the caller's own thread.

`sync` is made of this. What holds for every call is here, once: an interrupted wait takes the work back, a forked
process is told that it has no connection, records answer without `await`, and one error comes out, never a group.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from inspect import isawaitable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from hubbub_client import options
from hubbub_client.errors import Cancelled, FailedPrecondition, HubbubError
from hubbub_client.events import Event
from hubbub_client.portal import Portal
from hubbub_client.records import PendingRequest, Record
from hubbub_client.waits import in_thread

S = TypeVar("S")
R = TypeVar("R")
P = ParamSpec("P")
# What the library calls while somebody waits: here in a thread of its own, where it may use the hub itself.
CALLBACKS = options.CALLBACKS | {"on_copied"}


class Errand:
    """Work for the loop that can be taken back at any time, also before it has begun there."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._taken_back = False
        self.ended = False

    async def run(self, work: Callable[..., Awaitable[R]], *args: Any) -> R | None:
        """What the work comes to; None when it was taken back, and nobody waits for it."""
        self._task = asyncio.current_task()
        try:
            return None if self._taken_back else await work(*args)
        except asyncio.CancelledError:
            if not self._taken_back:
                raise
            return None
        finally:
            self.ended = True

    def take_back(self) -> None:
        """Ends the work, or has it never begin. Called on the loop."""
        self._taken_back = True
        if self._task is not None and not self.ended:
            self._task.cancel()


class Home:
    """The event loop behind one `connect`, and the process and the thread that it belongs to."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        self._process = os.getpid()

    @property
    def here(self) -> bool:
        """Whether this is the process that has connected."""
        return os.getpid() == self._process

    def wait_for(self, work: Callable[..., Awaitable[R]], *args: Any) -> R:
        """What the work comes to. Raises HubbubError, and what the work's own callbacks raise."""
        if not self.here:
            raise FailedPrecondition(
                "this process was forked from the one that has connected; connect in it anew", reason="FORKED"
            )
        if threading.get_ident() == self._portal.thread:
            raise FailedPrecondition(
                "this would wait for itself: a callback that is a coroutine, or is told at once, cannot use the hub "
                "that it was given to",
                reason="WOULD_WAIT_FOR_ITSELF",
            )
        errand = Errand()
        try:
            try:
                future = self._portal.start(errand.run, work, *args)
            except RuntimeError:
                raise FailedPrecondition("this hub is closed; connect anew", reason="CLOSED") from None
            return cast("R", self.told(future.result()))
        except CancelledError:
            raise Cancelled("this hub was closed meanwhile", reason="CLOSED") from None
        except BaseExceptionGroup as group:
            raise first(group) from None
        finally:
            # A signal has ended the wait, perhaps in the hand-over, when there is no future to cancel yet.
            if not errand.ended:
                with suppress(RuntimeError):  # the loop has ended, and the work with it
                    self._portal.loop.call_soon_threadsafe(errand.take_back)

    def told(self, value: Any) -> Any:
        """What the library gives back, its records as those of this module: also within lists and events."""
        match value:
            case SyncPendingRequest():
                return value
            case PendingRequest():
                own = {each.name: getattr(value, each.name) for each in fields(value)}
                return SyncPendingRequest(**own, _home=self)
            case list():
                return [self.told(each) for each in cast("list[Any]", value)]
            case tuple():
                return tuple(self.told(each) for each in cast("tuple[Any, ...]", value))
            case Event() | Record() if is_dataclass(value):
                held = {each.name: getattr(value, each.name) for each in fields(value)}
                told = {name: self.told(old) for name, old in held.items() if isinstance(old, (Record, tuple))}
                return replace(value, **told) if any(told[name] is not held[name] for name in told) else value
            case _:
                return value

    def callback(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """A function of the caller's, as one that the library can wait for; it gets records of this module."""

        async def call(*args: Any) -> Any:
            found = await in_thread(function, *map(self.told, args))
            return await found if isawaitable(found) else found

        return call


def _answering(method: Callable[..., Awaitable[PendingRequest]]) -> Any:
    """A method of the record, waited for."""

    def wait(request: "SyncPendingRequest", *args: Any, **kwargs: Any) -> PendingRequest:
        if request.home is None:
            raise RuntimeError("this record does not come from a hub")
        return request.home.wait_for(partial(method, request, *args, **kwargs))

    wait.__name__, wait.__doc__ = method.__name__, method.__doc__
    return wait


@dataclass(frozen=True, kw_only=True)
class SyncPendingRequest(PendingRequest):
    """As `PendingRequest`; each of its methods waits, and gives back such a record."""

    _home: Home | None = field(default=None, repr=False, compare=False)

    @property
    def home(self) -> Home | None:
        """Where its methods are carried out."""
        return self._home

    accept = _answering(PendingRequest.accept)
    decline = _answering(PendingRequest.decline)
    cancel = _answering(PendingRequest.cancel)
    reply_text = _answering(PendingRequest.reply_text)
    reply = _answering(PendingRequest.reply)
    reject = _answering(PendingRequest.reject)


def first(error: BaseException) -> BaseException:
    """The error that a group of tasks ended with: that of the hub, where there is one."""
    while isinstance(error, BaseExceptionGroup):
        within = cast("BaseExceptionGroup[BaseException]", error).exceptions
        error = next((each for each in within if isinstance(each, HubbubError)), within[0])
    return error


class Facade(Generic[S]):
    """A part of the library, used from a thread that has no event loop."""

    def __init__(self, home: Home, part: S) -> None:
        self._home = home
        self._part = part

    @property
    def home(self) -> Home:
        """Where its methods are carried out."""
        return self._home

    @property
    def here(self) -> bool:
        """Whether this is the process that has connected."""
        return self._home.here

    def given(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """A method's keywords, its callbacks made fit."""
        return {
            name: self._home.callback(value) if name in CALLBACKS and value is not None else value
            for name, value in keywords.items()
        }

    def wait_for(self, work: Callable[[S], Awaitable[R]]) -> R:
        """What the work on the library's part comes to."""
        return self._home.wait_for(work, self._part)


def blocking(method: Callable[Concatenate[S, P], Awaitable[R]]) -> Callable[Concatenate[Facade[S], P], R]:
    """The method, waited for."""

    def wait(facade: Facade[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        given = facade.given(kwargs)
        return facade.wait_for(lambda part: cast("Any", method)(part, *args, **given))

    wait.__name__, wait.__doc__ = method.__name__, method.__doc__
    return wait


def iterating(
    method: Callable[Concatenate[S, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[Facade[S], P], Iterator[R]]:
    """The method's events, each waited for; closing the iterator ends the watch."""

    def iterate(facade: Facade[S], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        given = facade.given(kwargs)

        turn = asyncio.Lock()  # a step that was interrupted may still be on its way out

        async def begin(part: S) -> AsyncGenerator[R, None]:
            return cast("Any", method)(part, *args, **given)

        async def step(_: S) -> tuple[R, ...]:
            async with turn:
                async for event in events:
                    return (event,)
            return ()

        async def end(_: S) -> None:
            async with turn:
                await events.aclose()

        events = facade.wait_for(begin)
        try:
            while found := facade.wait_for(step):
                yield found[0]
        finally:
            if facade.here:
                facade.wait_for(end)

    iterate.__name__, iterate.__doc__ = method.__name__, method.__doc__
    return iterate


def asking(
    method: Callable[Concatenate[S, P], Awaitable[PendingRequest]],
) -> Callable[Concatenate[Facade[S], P], SyncPendingRequest]:
    """As `blocking`, and says what comes back."""
    return cast("Any", blocking(method))


def asking_all(
    method: Callable[Concatenate[S, P], Awaitable[Sequence[PendingRequest]]],
) -> Callable[Concatenate[Facade[S], P], Sequence[SyncPendingRequest]]:
    """As `asking`, for several."""
    return cast("Any", blocking(method))
