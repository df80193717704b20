"""hubbubd with two things that the product does without: a probe of its event loop, and a profiler.

SIGUSR1 begins the measurement. At its end the hub writes to the file named by HUBBUB_PROBE how late the loop was and
how long its turns kept the processor; with HUBBUB_PROFILE it also writes a profile (cProfile). Options are hubbubd's.
"""

import cProfile
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

import hubbubd.program.app

TICK_S = 0.001

plain_serve = hubbubd.program.app.serve


class Probe:
    """Wakes every millisecond; what keeps it from that keeps everything else too."""

    def __init__(self) -> None:
        self.late_s: list[float] = []
        self.busy_s: list[float] = []
        self.profile = cProfile.Profile()

    async def run(self) -> None:
        """Probes until cancelled."""
        while True:
            due, spent = time.perf_counter() + TICK_S, time.thread_time()
            await anyio.sleep(TICK_S)
            self.late_s.append(time.perf_counter() - due)
            self.busy_s.append(time.thread_time() - spent)

    async def begin_when_told(self) -> None:
        """Forgets at each SIGUSR1 what was before."""
        with anyio.open_signal_receiver(signal.SIGUSR1) as signals:
            async for _ in signals:
                self.late_s.clear()
                self.busy_s.clear()
                if "HUBBUB_PROFILE" in os.environ:
                    self.profile.enable()

    def write(self) -> None:
        """Leaves what was measured in files."""
        self.profile.disable()
        Path(os.environ["HUBBUB_PROBE"]).write_text(json.dumps({"late_s": self.late_s, "busy_s": self.busy_s}))
        if path := os.environ.get("HUBBUB_PROFILE"):
            self.profile.dump_stats(path)


@asynccontextmanager
async def serve_probed(*args: Any, **options: Any) -> AsyncGenerator[str]:
    """Serves as the product does, with a probe beside."""
    probe = Probe()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probe.begin_when_told)
        tasks.start_soon(probe.run)
        async with plain_serve(*args, **options) as address:
            yield address
            probe.write()
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    hubbubd.program.app.serve = serve_probed
    sys.exit(hubbubd.program.app.run(sys.argv[1:]))
