"""How long a connection waits before it tries again."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core.servers.backoff import JITTER, delay_s

STEPS = (1.0, 2.0, 4.0)
sorted_steps = st.lists(st.floats(0.001, 1e7), min_size=1, max_size=6).map(sorted)


@pytest.mark.parametrize(("attempt", "expected"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (99, 60)])
def test_the_steps_come_first_then_the_delay_doubles_up_to_the_ceiling(attempt: int, expected: float) -> None:
    assert delay_s(attempt, STEPS, 60) == expected


def test_the_ceiling_bounds_the_configured_steps_too() -> None:
    assert delay_s(1, (90,), 60) == 60


def test_no_attempt_yet_waits_like_the_first() -> None:
    assert delay_s(0, STEPS, 60) == delay_s(1, STEPS, 60)


def test_full_jitter_stretches_a_delay_by_its_share_and_none_leaves_it() -> None:
    assert delay_s(2, STEPS, 60, jitter=0) == 2
    assert delay_s(2, STEPS, 60, jitter=1) == pytest.approx(2 * (1 + JITTER))


@given(sorted_steps, st.floats(0.001, 1e7), st.integers(1, 200))
def test_a_later_attempt_never_waits_less(steps: list[float], ceiling_s: float, attempt: int) -> None:
    assert delay_s(attempt, steps, ceiling_s) <= delay_s(attempt + 1, steps, ceiling_s)


@given(sorted_steps, st.floats(0.001, 1e7), st.integers(1, 10**30), st.floats(0, 1))
def test_a_delay_stays_between_its_base_and_the_stretched_ceiling(
    steps: list[float], ceiling_s: float, attempt: int, jitter: float
) -> None:
    delay = delay_s(attempt, steps, ceiling_s, jitter)
    assert math.isfinite(delay)
    assert delay_s(attempt, steps, ceiling_s) <= delay <= ceiling_s * (1 + JITTER)
