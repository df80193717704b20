"""The end of commands that finish what is under way first."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import anyio


@contextmanager
def stop_on_signal() -> Generator["anyio.Event"]:
    """Yield an event that the first SIGINT or SIGTERM sets; the second one cancels the block."""
    import asyncio  # imported late, as anyio: the help needs neither

    import anyio

    stop, loop, signals = anyio.Event(), asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
    with anyio.CancelScope() as scope:

        def handle_signal() -> None:
            """Set the event at the first signal, cancel the block at the second."""
            if stop.is_set():
                scope.cancel()
            stop.set()

        for number in signals:
            loop.add_signal_handler(number, handle_signal)
        try:
            yield stop
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
