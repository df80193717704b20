"""Feeds a hub what nobody should send it, and looks for what must not come of it.

    python -m tests.fuzz.run --inputs 100000 [--seed N] [--area grpc=700]     (or `make fuzz INPUTS=100000`)

The areas share the inputs: `grpc` (every RPC, every field, raw bytes, over gRPC and Connect), `payloads` (JSON inside
requests), `hostile` (servers over stdio and HTTP), `configuration` (files, environment, command line), `magnitudes`
(numbers and times past every bound, in every field of all of these that has one), `command_line` (words,
environment, `client.json` of `hubbub`, and of `hubbubd`), `hosts` (messages, headers and sessions at the MCP
endpoint), `framing` (HTTP as bytes on every HTTP port and on that of `hubbub web`), `bridges` (frames of bridges,
several at once) and `bridge_lines` (lines from hosts to `hubbub mcp`). In `hosts`, `bridges` and `bridge_lines`,
hosts that behave are asked between the inputs, and their answers must arrive.

Exits with 1 when there was an internal or unclassified error, no response within its bound, an error or a traceback in
the hub's log, or more memory, tasks of the loop or open files afterwards than there may be. Each finding shows the
input; `--seed` and the number of the input make it again.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio

from .bridge_lines import bridge_lines
from .bridges import bridges
from .command_line import command_line
from .configuration import configuration
from .extremes import magnitudes
from .framing import framing
from .hostile import hostile
from .hosts import hosts
from .over_grpc import over_grpc
from .payloads import payloads
from .subject import Tally

Area = Callable[[Tally, int, Path], Awaitable[None]]

AREAS: dict[str, tuple[Area, float]] = {
    "grpc": (over_grpc, 0.3),
    "payloads": (payloads, 0.15),
    "hostile": (hostile, 0.1),
    "configuration": (configuration, 0.28),
    "magnitudes": (magnitudes, 0.05),
    "command_line": (command_line, 0.02),
    "hosts": (hosts, 0.1),
    "framing": (framing, 0.1),
    "bridges": (bridges, 0.05),
    "bridge_lines": (bridge_lines, 0.05),
}
"""Each with its share of the inputs: what takes longer for one input gets fewer."""


async def fuzz(area: str, inputs: int, seed: int, directory: Path, say: Callable[[str], None]) -> Tally:
    """Feeds one area so many inputs."""
    tally = Tally(area, inputs, say=say)
    await AREAS[area][0](tally, seed, directory / area)
    return tally


def _area(text: str) -> tuple[str, int]:
    """An area, and how many inputs it is to have; 0 for as many as the run."""
    area, _, inputs = text.partition("=")
    if area not in AREAS:
        raise argparse.ArgumentTypeError(f"no area is called {area!r}: {', '.join(AREAS)}")
    return area, int(inputs or 0)


async def main(argv: Sequence[str]) -> int:
    """All areas one after the other; the exit status."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="of all areas together")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    areas = ", ".join(AREAS)
    parser.add_argument(
        "--area", metavar="NAME[=INPUTS]", type=_area, action="append", help=f"only this one of {areas}; repeatable"
    )
    options = parser.parse_args(argv)
    begin = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - begin:7.0f} s  {what}", flush=True)

    say(f"seed {options.seed}")
    tallies: list[Tally] = []
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        shares = [(area, round(options.inputs * share)) for area, (_, share) in AREAS.items()]
        for area, inputs in options.area or shares:
            tallies.append(await fuzz(area, inputs or options.inputs, options.seed, Path(directory), say))
            say(tallies[-1].summary())
    findings = sum(len(tally.findings) for tally in tallies)
    say(f"{sum(tally.done for tally in tallies)} inputs, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1:]))
