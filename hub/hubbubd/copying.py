"""`hubbubd --copy-store`: one copy of a store, in a process of its own that says how far it is."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio

from hubbubd import console
from hubbubd.config.hub import HubSettings
from hubbubd.config.places import CopyOrder
from hubbubd.store.transfer import Transferred, carry_out

TOLD_S: Final = 1.0
"""Seconds between two words about a long copy."""


def make(order: CopyOrder, settings: HubSettings) -> Transferred | None:
    """Make a copy and return what was done; None if a signal ended it before. Raises as `carry_out`."""
    return anyio.run(_made, order, settings)


async def _made(order: CopyOrder, settings: HubSettings) -> Transferred | None:
    done: Transferred | None = None
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                await anext(signals)
                tasks.cancel_scope.cancel()

            tasks.start_soon(end)
            done = await carry_out(order, settings, progress(time.monotonic))
            tasks.cancel_scope.cancel()
    return done


def progress(now: Callable[[], float]) -> Callable[[int, int], None]:
    """Return what says on stderr how many records of how many are copied, once in TOLD_S and at the end.

    `now` is a steady time in seconds.
    """
    due = now()

    def tell(done: int, whole: int) -> None:
        nonlocal due
        at = now()
        if at >= due or done == whole:
            due = at + TOLD_S
            with suppress(OSError):  # nobody reads it
                console.welcome([f"{done} of {whole} records copied"])

    return tell
