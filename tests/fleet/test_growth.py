"""The verdict on a fleet at load: what has grown, and what was past its bound, is found, and nothing else."""

from pathlib import Path

import pytest

from .growth import Bounded, Steady, after_warm_up, bounded, grown, table
from .looks import Look, sums
from .soak import Soak


def looks(*entries: int) -> list[Look]:
    """One each ten seconds, of a database with so many records."""
    none = dict.fromkeys(("tombstones", "commits", "longest_queue", "on_the_wire", "open"), 0)
    sizes = {"cpu_s": 0.0, "store_mib": 0.0, "database_mib": 0.0}
    return [
        Look(at_s=10.0 * number, members={}, rows={"call": count}, **sizes, **none)
        for number, count in enumerate(entries, 1)
    ]


RECORDS = Steady("records", lambda look: look.entries)


@pytest.mark.parametrize(("last", "wrong"), [(110, False), (111, True), (90, False)])
def test_what_is_a_tenth_more_at_the_end_has_not_grown(last: int, wrong: bool) -> None:
    row = grown(looks(100, 100, 300, 300, 300, 300, last, last), RECORDS)
    assert (row.first, row.last, row.most) == (100, last, 300)
    assert bool(row.wrong) == wrong


def test_what_is_noise_is_not_growth() -> None:
    seen = looks(1, 1, 1, 8)
    assert grown(seen, RECORDS).wrong
    assert not grown(seen, Steady("records", lambda look: look.entries, noise=7)).wrong


def test_a_bound_is_one_at_every_moment() -> None:
    assert not bounded(looks(1, 5, 1), Bounded("records", lambda look: look.entries, 5)).wrong
    row = bounded(looks(1, 6, 1), Bounded("records", lambda look: look.entries, 5))
    assert row.wrong == "records: 6.0 at most, and its bound is 5.0"
    assert "WRONG" in table([row])


def test_what_was_not_to_be_seen_is_left_out() -> None:
    row = grown(looks(1, 9, 1), Steady("records", lambda look: None if look.entries == 9 else look.entries))
    assert (row.most, row.wrong) == (1, "")


def test_a_fleet_that_was_never_to_be_seen_is_judged(tmp_path: Path) -> None:
    soak = Soak(tmp_path, 7, 6.0)
    (nothing,) = looks(0)
    assert soak._rows(nothing, minutes=1)
    assert "c was not to be seen at the end" in soak.memory.violations


def test_the_warm_up_does_not_count() -> None:
    assert [look.at_s for look in after_warm_up(looks(9, 1, 1), 20)] == [20, 30]


def test_metrics_are_summed_over_their_series() -> None:
    assert sums(["# HELP open Open.", 'open{kind="a"} 2.0', 'open{kind="b c"} 1.0', "late 0.5"]) == {
        "open": 3.0,
        "late": 0.5,
    }
