"""Some seven thousand inputs that nobody should send, the same each time; `make fuzz` tries any number of others."""

import sys
from pathlib import Path

import anyio
import pytest

from .. import forks
from .hostile import trial
from .run import AREAS

SEED = 7
INPUTS = {
    "grpc": 700,
    "payloads": 400,
    "hostile": 200,
    "configuration": 700,
    "magnitudes": 300,
    "command_line": 700,
    "hosts": 2000,
    "framing": 800,
    "bridges": 700,
    "bridge_lines": 700,
}

ROOT = Path(__file__).parents[2]


TOGETHER = (
    ("command_line", "configuration"),
    ("grpc", "payloads", "hostile"),
    ("magnitudes", "hosts"),
    ("framing", "bridges", "bridge_lines"),
)
"""Areas that share a process and its imports."""


@pytest.mark.parametrize("areas", TOGETHER, ids=" ".join)
async def test_nothing_that_is_sent_breaks_the_hub_or_goes_unclassified(areas: tuple[str, ...]) -> None:
    """In a process of its own.

    gRPC serves all loops of a process by one poller, and what it has left for a closed one fails the next one.
    """
    words = [word for area in areas for word in ("--area", f"{area}={INPUTS[area]}")]
    command = [sys.executable, "-m", "tests.fuzz.run", *words, "--seed", str(SEED)]
    done = await anyio.run_process(command, check=False, cwd=ROOT, env=forks.environment_with_forks())
    said = done.stdout.decode()
    print(said, done.stderr.decode()[-2000:])
    assert done.returncode == 0
    for area in areas:
        _, _, outcomes = said.partition(f"{area}: {INPUTS[area]} inputs, 0 findings; ")
        assert ", " in outcomes.partition("\n")[0], f"{area}: it must have come to more than one outcome"


def test_every_area_is_tried() -> None:
    assert {area for areas in TOGETHER for area in areas} == set(AREAS) == set(INPUTS)


async def test_what_a_server_sends_does_not_fill_the_log_of_the_hub(tmp_path: Path) -> None:
    async with trial(tmp_path, seed=SEED) as tried:
        for number in range(60):
            await tried.call(f"http-{tried.revisions[number % 2]}", number)
        log = tried.subject.log.read_text()
    assert "Traceback" not in log
    assert '"level": "error"' not in log
