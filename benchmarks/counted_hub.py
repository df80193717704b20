"""hubbubd that counts what it holds for hosts: at each SIGUSR1 it writes how many objects there are of each class.

They are those of the rooms that hosts use, after a collection of what is garbage. The counts go to the file named by
HUBBUB_COUNTS, as JSON. Options are hubbubd's.
"""

import gc
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

import hubbubd.program.app

ROOMS = ("hubbubd.downstream", "hubbubd.rpc.mcp", "hubbubd.runtime.inbox.reservations")

plain_serve = hubbubd.program.app.serve


def count_objects() -> dict[str, int]:
    """How many objects there are of each class, by its full name."""
    gc.collect()
    kinds = map(type, gc.get_objects())
    return dict(
        Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds if kind.__module__.startswith(ROOMS))
    )


async def write_counts_at_signal() -> None:
    """Writes the counts at each signal; the file is there once it is whole."""
    path = Path(os.environ["HUBBUB_COUNTS"])
    with anyio.open_signal_receiver(signal.SIGUSR1) as signals:
        async for _ in signals:
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(count_objects()))
            fresh.replace(path)


@asynccontextmanager
async def serve_counted(*args: Any, **options: Any) -> AsyncGenerator[str]:
    """Serves as the product does, and counts at each signal."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write_counts_at_signal)
        async with plain_serve(*args, **options) as address:
            yield address
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    hubbubd.program.app.serve = serve_counted
    sys.exit(hubbubd.program.app.run(sys.argv[1:]))
