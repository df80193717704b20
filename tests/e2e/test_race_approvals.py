"""Fifty people approve the same call at once. The long forms are `make race-approvals RACES=1000`."""

import random
from pathlib import Path

import anyio
import pytest

from .race_approvals import NEEDED, race_at_hub

ROUNDS = 15
APPROVERS = 50
LIMIT_S = 300


async def test_of_fifty_who_approve_at_once_as_many_count_as_are_needed(
    tmp_path: Path, processes: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with anyio.fail_after(LIMIT_S):
        race = await race_at_hub(tmp_path, random.SystemRandom().randrange(1 << 32), ROUNDS, APPROVERS)
    with capsys.disabled():
        print(f"\nseed {race.seed}: {dict(race.counts)}")
    assert race.violations == []
    assert race.counts["counted"] == ROUNDS * sum(NEEDED) / len(NEEDED)
    # A race that nobody loses proves nothing.
    assert race.counts["ALREADY_ANSWERED"] > ROUNDS * APPROVERS / 2
