"""Runs an event loop in a thread of its own, for `sync`; other threads start work on it."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVar

R = TypeVar("R")

# Bound of callbacks that run at once, each in a thread; a callback may cause further ones.
MAX_CALLBACKS = 40


class Loop(asyncio.SelectorEventLoop):
    """Ignores callbacks after its end: gRPC schedules them from another loop, which would get the error."""

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback from any thread, as every loop does; do nothing once the loop is closed."""
        try:
            return super().call_soon_threadsafe(callback, *args, context=context)
        except RuntimeError:
            if not self.is_closed():
                raise
            return asyncio.Handle(callback, args, self, context)


class Portal:
    """Starts work on the loop, from any thread. Made by `open_portal`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        self.loop = loop
        self.thread = threading.get_ident()
        self._stop = stop
        self._lock = threading.Lock()
        self._is_open = True

    def start(self, work: Callable[..., Awaitable[R]], *args: Any) -> "Future[R]":
        """Start work on the loop with the caller's context variables. Raises RuntimeError once this is closed."""

        async def run_work() -> R:
            """Do the work, as a coroutine: the loop takes no other awaitable from a thread."""
            return await work(*args)

        with self._lock:
            if not self._is_open:
                raise RuntimeError("the loop is closed")
            return asyncio.run_coroutine_threadsafe(run_work(), self.loop)

    def close(self) -> None:
        """Refuse further work and cancel the work under way."""
        with self._lock:
            self._is_open = False
            self.loop.call_soon_threadsafe(self._stop.set)


@contextmanager
def open_portal() -> Generator[Portal]:
    """Run a loop for the block and until its work has ended; a forked process has no loop."""
    portal_future: Future[Portal] = Future()
    process = os.getpid()

    async def serve_until_stopped() -> None:
        """Set the portal as the result of the future, and keep the loop running until the portal is closed."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        loop.set_default_executor(ThreadPoolExecutor(MAX_CALLBACKS, "hubbub_client"))
        portal_future.set_result(Portal(loop, stop))
        await stop.wait()

    def run_loop() -> None:
        """Run the loop in this thread until it is stopped; `open_portal` raises an error that comes before it runs."""
        try:
            with asyncio.Runner(loop_factory=Loop) as runner:
                runner.run(serve_until_stopped())
        except BaseException as error:
            if portal_future.done():
                raise
            portal_future.set_exception(error)

    thread = threading.Thread(target=run_loop, name="hubbub_client")
    thread.start()
    portal = portal_future.result()
    try:
        yield portal
    finally:
        if os.getpid() == process:  # a forked process has no such thread to end
            portal.close()
            thread.join()
