"""Some thirty thousand inputs that nobody should send, the same each time; `make fuzz` tries any number of others."""

import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from .hostile import trial
from .run import AREAS, fuzz

SEED = 7
INPUTS = {
    "grpc": 700,
    "payloads": 400,
    "hostile": 200,
    "configuration": 700,
    "magnitudes": 300,
    "command_line": 2000,
    "hosts": 20_000,
    "bridges": 2000,
    "bridge_lines": 2000,
}

ALONE = {"command_line"}
"""Areas with a process of their own.

Commands close the loops that they ran on. gRPC serves all loops of a process by one poller, and what it has left for a
closed one keeps it from the others.
"""

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("area", AREAS)
async def test_nothing_that_is_sent_breaks_the_hub_or_goes_unclassified(
    area: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if area in ALONE:
        await _alone(area)
        return
    say: Callable[[str], None] = print
    tally = await fuzz(area, INPUTS[area], SEED, tmp_path, say)
    assert tally.findings == []
    assert tally.done == INPUTS[area]
    assert len(tally.outcomes) > 1


async def _alone(area: str) -> None:
    words = ["--area", area, "--inputs", str(INPUTS[area]), "--seed", str(SEED)]
    done = await anyio.run_process([sys.executable, "-m", "tests.fuzz.run", *words], check=False, cwd=ROOT)
    said = done.stdout.decode()
    print(said, done.stderr.decode()[-2000:])
    assert done.returncode == 0
    assert f"{INPUTS[area]} inputs, 0 findings" in said
    assert "exit 0" in said
    assert "exit 2" in said


async def test_what_a_server_sends_does_not_fill_the_log_of_the_hub(tmp_path: Path) -> None:
    async with trial(tmp_path, seed=SEED) as tried:
        for number in range(60):
            await tried.call(f"http-{tried.revisions[number % 2]}", number)
        log = tried.subject.log.read_text()
    assert "Traceback" not in log
    assert '"level": "error"' not in log
