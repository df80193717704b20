"""The benchmarks with hubs and servers that are forked: `python -m tests.e2e.forked_benchmarks`, as `run.py`.

What they measure then is nothing, but each part runs, for less than half of the processor time.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import anyio
import processes

from .. import forks


class Forking:
    """The anyio of what starts processes: what may be forked is forked."""

    def __getattr__(self, name: str) -> Any:
        return getattr(anyio, name)

    async def open_process(self, command: Sequence[str | Path], **pipes: Any) -> anyio.abc.Process:
        return await forks.start([str(word) for word in command], **pipes)


def stdio_server(name: str, *args: str) -> dict[str, Any]:
    """As that of the benchmarks."""
    return forks.quick(started_for_real(name, *args))


processes.anyio = Forking()  # type: ignore[attr-defined]
started_for_real, processes.stdio_server = processes.stdio_server, stdio_server

if __name__ == "__main__":
    import run  # its parts take the functions of `processes` as they are now

    sys.exit(run.run_command())
