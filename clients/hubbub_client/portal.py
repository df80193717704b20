"""An event loop in a thread of its own, for `sync`: work is handed to it from threads that have none."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

R = TypeVar("R")

# Callbacks that can wait at once, each in a thread; what they wait for may call back, too.
MAX_CALLBACKS = 40


class Portal:
    """The way to the loop. Made by `opened`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        self.loop = loop
        self.thread = threading.get_ident()
        self._stop = stop
        self._lock = threading.Lock()
        self._is_open = True

    def start(self, work: Callable[..., Awaitable[R]], *args: Any) -> "Future[R]":
        """Starts work on the loop, with the context variables of the caller. Raises RuntimeError once it is closed."""

        async def working() -> R:
            return await work(*args)

        with self._lock:
            if not self._is_open:
                raise RuntimeError("the loop is closed")
            return asyncio.run_coroutine_threadsafe(working(), self.loop)

    def close(self) -> None:
        """Takes no more work, and cancels what is under way."""
        with self._lock:
            self._is_open = False
            self.loop.call_soon_threadsafe(self._stop.set)


@contextmanager
def opened() -> Generator[Portal]:
    """A loop for the length of the block, and until all its work has ended; in a forked process there is none."""
    begun: Future[Portal] = Future()
    process = os.getpid()

    async def serve() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        loop.set_default_executor(ThreadPoolExecutor(MAX_CALLBACKS, "hubbub_client"))
        begun.set_result(Portal(loop, stop))
        await stop.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if begun.done():
                raise
            begun.set_exception(error)

    thread = threading.Thread(target=run, name="hubbub_client")
    thread.start()
    portal = begun.result()
    try:
        yield portal
    finally:
        if os.getpid() == process:
            portal.close()
            thread.join()
