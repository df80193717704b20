"""A hub that is killed again and again keeps every word it gave. The nightly form is `make crash KILLS=200`."""

import random
from pathlib import Path

import anyio
import pytest

from .crash import Storm, report

KILLS = 20
LIMIT_S = 300


async def test_what_was_acknowledged_outlives_twenty_kills(
    tmp_path: Path, mcp1_python: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    storm = Storm(tmp_path, mcp1_python, seed)
    with anyio.fail_after(LIMIT_S):
        await storm.run(KILLS, print)
    with capsys.disabled():
        print(f"\nseed {seed}\n{report(storm.memory)}")
    assert storm.memory.violations == []
    # A storm that did nothing proves nothing.
    counts = storm.memory.counts
    done = ("answers accepted", "answers refused", "calls completed", "task results fetched", "claims")
    assert {name: counts[name] for name in done if counts[name] < KILLS / 2} == {}
