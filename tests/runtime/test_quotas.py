"""What one principal may have of what all share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hubbubd.errors import ResourceExhausted
from hubbubd.runtime.oversight import Quota
from hubbubd.runtime.oversight.quotas import MAX_BUCKETS, Rate
from hubbubd.timing.bucket import Bucket

LIMIT = 3
holders = st.sampled_from(["ada", "bob"])


class QuotaModel(RuleBasedStateMachine):
    """Blocks that begin and end in any order, some with an error, beside a plain list of those that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.quota = Quota("things", LIMIT, reason="TOO_MANY_CALLS")
        self.open: list[tuple[str, object]] = []

    @rule(holder=holders)
    def begin(self, holder: str) -> None:
        block = self.quota.hold(holder)
        full = sum(who == holder for who, _ in self.open) == LIMIT
        if full:
            with pytest.raises(ResourceExhausted) as caught:
                block.__enter__()
            assert caught.value.metadata == {"limit": str(LIMIT), "principal": holder}
        else:
            block.__enter__()
            self.open.append((holder, block))

    @rule(which=st.integers(0, 10), fails=st.booleans())
    def end(self, which: int, fails: bool) -> None:
        if self.open:
            _, block = self.open.pop(which % len(self.open))
            error = RuntimeError("it failed") if fails else None
            try:
                block.__exit__(type(error) if error else None, error, None)
            except RuntimeError as exc:
                assert exc is error  # noqa: PT017

    @invariant()
    def counts_are_exact(self) -> None:
        for holder in ("ada", "bob"):
            assert self.quota.count(holder) == sum(who == holder for who, _ in self.open)


TestQuota = QuotaModel.TestCase


@given(
    rate=st.floats(0.1, 100),
    burst=st.floats(1, 50),
    gaps=st.lists(st.floats(0, 5, allow_nan=False), min_size=1, max_size=200),
)
def test_a_bucket_never_gives_more_than_its_burst_and_its_rate(rate: float, burst: float, gaps: list[float]) -> None:
    bucket, now, taken = Bucket(rate, burst, 0.0), 0.0, 0
    for gap in gaps:
        now += gap
        wait_s = bucket.take(now)
        taken += not wait_s
        assert taken <= burst + rate * now + 1e-6
        if wait_s:
            assert Bucket(rate, burst, 0.0).take(0.0) == 0
            assert bucket.take(now + wait_s + 1e-6) == 0, "there is one when it said that there would be"
            now, taken = now + wait_s + 1e-6, taken + 1


def test_who_exceeds_a_rate_hears_when_to_come_again_and_others_notice_nothing() -> None:
    now = 0.0
    rate = Rate("RPCs", 2, lambda: now, reason="RPC_RATE_EXCEEDED")
    for _ in range(20):  # ten seconds' worth
        rate.charge("ada")
    with pytest.raises(ResourceExhausted) as caught:
        rate.charge("ada")
    assert (caught.value.reason, caught.value.retry_after_s) == ("RPC_RATE_EXCEEDED", 0.5)
    rate.charge("bob")
    now = 0.5
    rate.charge("ada")
    with pytest.raises(ResourceExhausted):
        rate.charge("ada")


def test_of_any_number_of_addresses_only_the_newest_are_remembered() -> None:
    rate = Rate("RPCs", 1, lambda: 0.0, reason="RPC_RATE_EXCEEDED")
    for _ in range(10):  # ten seconds' worth
        rate.charge("first")
    for number in range(MAX_BUCKETS - 1):
        rate.charge(str(number))
    with pytest.raises(ResourceExhausted):
        rate.charge("first")
    for number in range(MAX_BUCKETS):
        rate.charge(f"another {number}")
    rate.charge("first")  # nothing is known of it any more
