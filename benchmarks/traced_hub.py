"""hubbubd that counts its own steps: which of its functions its event loop enters, between two signals.

The first SIGUSR1 begins, the second one ends and writes what was entered to the file named by HUBBUB_STEPS, as JSON:
one list of `[file, class, function]` in their order. A coroutine counts where it begins, not where it goes on.
Options are hubbubd's.
"""

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import anyio

import hubbubd.program.app

HUB = str(Path(hubbubd.program.app.__file__).parents[1])
"""The folder of the hub's own code."""
LOCAL = "<locals>"

plain_serve = hubbubd.program.app.serve


class Trace:
    """What the loop's thread enters."""

    def __init__(self) -> None:
        self.entered: list[CodeType] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note one event of the interpreter (`sys.setprofile`)."""
        code = frame.f_code
        # RESUME has 0 where a function begins, and another number after a yield or an await.
        if event == "call" and code.co_filename.startswith(HUB) and code.co_code[frame.f_lasti + 1] == 0:
            self.entered.append(code)

    def steps(self) -> list[tuple[str, str, str]]:
        """File below the hub's folder, class ("" for none) and name of each function, in their order."""
        return [
            (os.path.relpath(code.co_filename, HUB), class_of(code.co_qualname), code.co_qualname)
            for code in self.entered
        ]


def class_of(qualified: str) -> str:
    """The class that a function is a method of, or is defined in one of whose methods; empty without one."""
    first, *rest = qualified.split(".")
    return first if rest and rest[0] != LOCAL else ""


async def trace_when_told() -> None:
    """Traces from each odd signal to the next one; the file is there once it is whole."""
    path, trace = Path(os.environ["HUBBUB_STEPS"]), None
    with anyio.open_signal_receiver(signal.SIGUSR1) as signals:
        async for _ in signals:
            if trace is None:
                trace = Trace()
                path.with_suffix(".begun").touch()
                sys.setprofile(trace)
                continue
            sys.setprofile(None)
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(trace.steps()))
            fresh.replace(path)
            trace = None


@asynccontextmanager
async def serve(*args: Any, **options: Any) -> AsyncGenerator[str]:
    """Serves as the product does, and traces when told."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trace_when_told)
        async with plain_serve(*args, **options) as address:
            yield address
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    hubbubd.program.app.serve = serve
    sys.exit(hubbubd.program.app.run(sys.argv[1:]))
