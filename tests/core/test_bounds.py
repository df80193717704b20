"""Numbers from outside: whatever comes, what is read is within its bounds or None."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd import bounds

MAGNITUDES = (0, -1, 0.5, 2**31, 2**53, 2**63, 2**64 - 1, 10**400, -(10**400), 1e308, -1e308, math.inf, -math.inf)
NO_NUMBERS = (None, True, False, "1", b"1", [], {}, math.nan, object())
JSON = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(MAGNITUDES))


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_is_none(value: Any) -> None:
    assert bounds.clamp_whole(value) is None
    assert bounds.clamp_real(value) is None


@pytest.mark.parametrize("value", MAGNITUDES)
def test_any_magnitude_is_brought_within_the_bounds(value: float) -> None:
    assert 0 <= (bounds.clamp_whole(value) or 0) <= bounds.LARGEST_WHOLE
    assert abs(bounds.clamp_real(value) or 0) <= bounds.LARGEST_REAL
    assert datetime.fromtimestamp(bounds.clamp_moment(value) or 0, UTC)


@given(JSON, st.integers(-(2**60), 2**60), st.integers(0, 2**60))
def test_a_reader_never_raises_and_keeps_its_bounds(value: Any, low: int, span: int) -> None:
    found = bounds.clamp_whole(value, low, low + span)
    assert found is None or (type(found) is int and low <= found <= low + span)
    number = bounds.clamp_real(value, float(low), float(low + span))
    assert number is None or (type(number) is float and float(low) <= number <= float(low + span))


@given(st.integers(-(10**60), 10**60))
def test_an_integer_in_a_text_is_read_like_the_integer(value: int) -> None:
    assert bounds.parse_whole(str(value), -100, 10**9) == bounds.clamp_whole(value, -100, 10**9)


@pytest.mark.parametrize("text", ["", "-", "+", "1.5", "0x10", "\u0661", "1e3", "1_000", "--1", "+-1"])
def test_a_text_that_is_no_integer_is_none(text: str) -> None:
    assert bounds.parse_whole(text) is None


@pytest.mark.parametrize(
    ("text", "read"), [("9" * 100_000, 50), ("0" * 100_000 + "7", 7), ("-" + "9" * 5000, 0), (" 12 ", 12), ("+3", 3)]
)
def test_a_long_integer_in_a_text_is_bounded(text: str, read: int) -> None:
    assert bounds.parse_whole(text, 0, 50) == read


@given(st.text(max_size=50))
def test_no_text_makes_a_reader_raise(text: str) -> None:
    bounds.parse_whole(text)
    bounds.parse_real(text)
    bounds.parse_wait_s(text, 1e9)


@pytest.mark.parametrize(("text", "read"), [("1.5", 1.5), ("1e400", 9.0), ("-1e400", 0.0), ("nan", None), ("x", None)])
def test_a_number_in_a_text_is_bounded(text: str, read: float | None) -> None:
    assert bounds.parse_real(text, 0, 9) == read


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [
        ("120", 120.0),
        ("999999999999", 3600.0),
        ("Fri, 31 Dec 9999 23:59:59 -2300", 3600.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600.0),
        ("Mon, 01 Jan 0001 00:00:00 +2300", 0.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        ("Sun, 09 Sep 2001 01:47:40 GMT", 60.0),
        ("soon", None),
        ("", None),
    ],
)
def test_a_wait_is_a_number_or_a_date_and_no_longer_than_its_bound(text: str, wait_s: float | None) -> None:
    assert bounds.parse_wait_s(text, 1_000_000_000.0, high=3600) == wait_s
