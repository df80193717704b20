"""A hub that is killed while people approve calls. The nightly form is `make crash-approvals KILLS=200`."""

import random
from pathlib import Path

import anyio
import pytest

from .crash_approvals import ApprovalStorm

KILLS = 10
LIMIT_S = 300


async def test_no_call_is_sent_without_its_approval_or_twice_over_ten_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storm = ApprovalStorm(tmp_path, random.SystemRandom().randrange(1 << 32))
    with anyio.fail_after(LIMIT_S):
        await storm.run(KILLS)
    with capsys.disabled():
        print(f"\nseed {storm.seed}: {dict(storm.counts)}")
    assert storm.violations == []
    # A storm that did nothing proves nothing.
    assert storm.counts["approved"] >= KILLS / 2
