"""A hub that is killed while hosts ask and answer, a few times. The long form is `make crash-hosts`."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .crash_hosts import Stage, stage

KILLS, RESTARTS, ANY_SEED = 10, 10, 1 << 32


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Stage]:
    """Servers that outlive hubs."""
    async with stage(tmp_path) as it:
        yield it


@pytest.fixture
def chance() -> random.Random:
    """Moments of kills; the seed is shown when a test fails."""
    seed = random.SystemRandom().randrange(ANY_SEED)
    print(f"seed {seed}")
    return random.Random(seed)


async def test_a_host_gets_the_result_of_its_call_after_each_kill_and_each_tool_ran_once(
    made: Stage, chance: random.Random
) -> None:
    kills = made.kills(chance)
    await kills.rounds(KILLS)
    assert kills.seen.wrong == []
    assert kills.seen.counts["results"] == KILLS


async def test_a_host_hears_after_each_kill_that_its_call_is_gone(made: Stage, chance: random.Random) -> None:
    kills = made.kills(chance)
    await kills.losses(KILLS)
    assert kills.seen.wrong == []
    assert kills.seen.counts["clear errors"] == KILLS


async def test_no_request_over_a_bridge_is_lost_or_doubled_however_often_the_hub_ends(
    made: Stage, chance: random.Random
) -> None:
    restarts = made.restarts(chance)
    await restarts.run(RESTARTS, away_s=0)
    assert restarts.seen.wrong == []
    assert restarts.seen.counts["questions answered over restarts"] == RESTARTS
