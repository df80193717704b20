"""A fleet keeps every word it gave, whatever befalls its members and its database. The long form is `make fleet`."""

import random
from pathlib import Path

import anyio
import pytest

from ..e2e.crash import report
from .storm import Plan, Storm

SHORT = Plan(kills=3, stops=2, partitions=3, restarts=4, failovers=2)
"""Each kind of kill and of partition at least once, a failover and one back, a restart that takes two leases' time."""
LEASE_TTL_S = 3.0
PACE = 4.0
"""How much slower people are than in the long form: what they make is kept, and read by each member that starts."""

LIMIT_S = 1800


async def test_what_was_acknowledged_outlives_whatever_befalls_a_fleet(
    tmp_path: Path, processes: None, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    storm = Storm(tmp_path, seed, LEASE_TTL_S, together=2, pace=PACE)
    with anyio.fail_after(LIMIT_S):
        await storm.run(SHORT, print)
    with capsys.disabled():
        print(f"\nseed {seed}\n{report(storm.memory)}\n{storm.late}")
    assert storm.memory.violations == []
    # A storm that did nothing proves nothing.
    counts = storm.memory.counts
    done = ("answers accepted", "answers refused", "calls completed", "changes of leases", "claims")
    rounds = len(SHORT.order(random.Random(seed)))
    assert {name: counts[name] for name in done if counts[name] < rounds} == {}
