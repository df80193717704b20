"""A hub that is killed again and again keeps every word it gave. The nightly form is `make crash KILLS=200`."""

import random
from collections import Counter
from pathlib import Path

import anyio
import pytest

from .crash import Storm, report
from .crash_model import Memory, Told

KILLS = 20
LIMIT_S = 900


async def test_what_was_acknowledged_outlives_twenty_kills(
    tmp_path: Path, mcp1_python: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    storm = Storm(tmp_path, mcp1_python, seed)
    with anyio.fail_after(LIMIT_S):
        # Where others are at work, too, less happens between two kills.
        await storm.run(KILLS, print, lambda: enough(storm.memory))
    with capsys.disabled():
        print(f"\nseed {seed}\n{report(storm.memory)}")
    assert storm.memory.violations == []
    # A storm that did nothing proves nothing.
    counts = storm.memory.counts
    done = ("answers accepted", "answers refused", "calls completed", "task results fetched", "claims")
    assert {name: counts[name] for name in done if counts[name] < KILLS / 2} == {}


def enough(memory: Memory) -> bool:
    """Whether so much has happened that it proves something."""
    told = Counter(attempt.told for attempt in memory.attempts.values())
    return min(told[Told.ACCEPTED], told[Told.REFUSED], len(memory.leases), len(memory.tasks)) >= KILLS / 2
