"""Some thirty thousand inputs that nobody should send, the same each time; `make fuzz` tries any number of others."""

from collections.abc import Callable
from pathlib import Path

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


@pytest.mark.parametrize("area", AREAS)
async def test_nothing_that_is_sent_breaks_the_hub_or_goes_unclassified(
    area: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say: Callable[[str], None] = print
    tally = await fuzz(area, INPUTS[area], SEED, tmp_path, say)
    assert tally.findings == []
    assert tally.done == INPUTS[area]
    assert len(tally.outcomes) > 1


async def test_what_a_server_sends_does_not_fill_the_log_of_the_hub(tmp_path: Path) -> None:
    async with trial(tmp_path, seed=SEED) as tried:
        for number in range(60):
            await tried.call(f"http-{tried.revisions[number % 2]}", number)
        log = tried.subject.log.read_text()
    assert "Traceback" not in log
    assert '"level": "error"' not in log
