"""When people are notified of which pending requests: decisions in virtual time."""

from typing import Any

import pytest

from hubbub_notify.plan import GATHER_S, HOUR_S, Plan, count_history_s
from hubbub_notify.rules import parse_rules

from .waiting import NOON, claimed, pending

START = NOON.timestamp()


def plan(sent: list[float] | None = None, **given: Any) -> Plan:
    return Plan(parse_rules({"after_s": 10, "digest_s": 60, **given}), [START + each for each in sent or []])


def told(made: Plan, *moments: float) -> list[tuple[float, list[str]]]:
    """The notifications when it is asked at these seconds after noon, where something is."""
    found = [(moment, [each.id for each in made.pop_due(START + moment)]) for moment in moments]
    return [(moment, ids) for moment, ids in found if ids]


def test_nothing_is_told_before_a_question_has_been_open_for_long_enough() -> None:
    made = plan()
    made.update(pending())
    assert made.find_next_time() == START + 10 + GATHER_S
    assert told(made, 0, 9.9, 10.9, 11, 12, 5000) == [(11, ["req_1"])]
    assert made.find_next_time() is None


@pytest.mark.parametrize("after_it", ["gone", "answered", "withdrawn", "expired"])
def test_what_is_answered_before_it_is_due_is_never_told(after_it: str) -> None:
    made = plan()
    made.update(pending())
    made.remove("req_1") if after_it == "gone" else made.update(pending(state=after_it))
    assert made.find_next_time() is None
    assert told(made, 11, 5000) == []


def test_what_somebody_is_answering_is_told_only_once_the_claim_is_given_up() -> None:
    made = plan()
    made.update(pending())
    made.update(claimed())
    assert told(made, 11, 100) == []
    made.update(pending())
    assert told(made, 101) == [(101, ["req_1"])]


def test_what_was_not_delivered_waits_again_once_somebody_claims_it() -> None:
    made = plan(digest_s=0)
    made.update(pending())
    assert told(made, 11) == [(11, ["req_1"])]
    assert not made.requeue_if_claimed("req_1")
    made.update(claimed())
    assert made.requeue_if_claimed("req_1")
    assert made.requeue_if_claimed("req_1"), "a second target that it was not delivered to asks, too"
    assert made.is_wanted("req_1")
    assert told(made, 12) == []
    made.update(pending())
    assert told(made, 13) == [(13, ["req_1"])]
    assert told(made, 14) == []


def test_questions_of_one_moment_are_told_together_and_oldest_first() -> None:
    made = plan()
    for number in range(50):
        made.update(pending(f"req_{number:02}", number / 100))
    assert told(made, 11) == [(11, [f"req_{number:02}" for number in range(50)])]


def test_what_comes_after_a_notification_is_gathered_for_the_next() -> None:
    made = plan()
    made.update(pending("first"))
    assert told(made, 11) == [(11, ["first"])]
    made.update(pending("second", 2))
    made.update(pending("third", 40))
    made.update(pending("too young", 62))
    assert told(made, 13, 60, 70.9, 71) == [(71, ["second", "third"])]
    assert told(made, 73, 130.9, 131) == [(131, ["too young"])]


def test_with_no_digest_each_question_is_told_by_itself() -> None:
    made = plan(digest_s=0)
    made.update(pending("first"))
    made.update(pending("second", 5))
    assert told(made, 11, 16) == [(11, ["first"]), (16, ["second"])]


def test_no_more_are_sent_within_an_hour_than_allowed_and_nothing_is_lost() -> None:
    made = plan(digest_s=0, per_hour=2)
    for number in range(4):
        made.update(pending(f"req_{number}", 10 * number))
    assert told(made, 11, 21, 31, 41, HOUR_S + 10.9, HOUR_S + 11, HOUR_S + 20) == [
        (11, ["req_0"]),
        (21, ["req_1"]),
        (HOUR_S + 11, ["req_2", "req_3"]),
    ]


def test_notifications_are_remembered_for_as_long_as_they_count() -> None:
    assert count_history_s(parse_rules({})) == HOUR_S
    assert count_history_s(parse_rules({"digest_s": 7200})) == 7200


def test_notifications_of_an_earlier_service_count() -> None:
    made = plan(sent=[-100, -30], per_hour=2)
    made.update(pending())
    assert made.find_next_time() == START - 100 + HOUR_S
    made = plan(sent=[-30], per_hour=2)
    made.update(pending("old", -1000))
    assert made.find_next_time() == START + 30


def test_quiet_hours_hold_everything_back_until_they_end() -> None:
    made = plan(quiet="12:00-13:30", timezone="UTC")
    made.update(pending("one"))
    made.update(pending("two", 3000))
    assert made.find_next_time() == START + 5400
    assert told(made, 11, 3011, 5399, 5400) == [(5400, ["one", "two"])]


def test_what_was_told_before_a_restart_is_not_told_again() -> None:
    made = plan()
    made.update(pending("told"))
    made.mark_notified(["told"])
    made.update(pending("told"))
    made.update(pending("new", 1))
    assert told(made, 5000) == [(5000, ["new"])]
    assert [made.is_wanted(each) for each in ("told", "new", "other")] == [True, True, False]


WANTED: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({}, {}, True),
    ({"servers": ["deploy"]}, {}, True),
    ({"servers": ["dep*", "x"]}, {}, True),
    ({"servers": ["Deploy"]}, {}, False),
    ({"servers": ["other"]}, {}, False),
    ({"kinds": ["elicitation_form"]}, {}, True),
    ({"kinds": ["sampling", "roots"]}, {}, False),
    ({"kinds": ["sampling"]}, {"kind": "sampling"}, True),
    ({"kinds": ["sampling"], "servers": ["other"]}, {"kind": "sampling"}, False),
]


@pytest.mark.parametrize(("given", "fields", "wanted"), WANTED)
def test_only_what_the_rules_name_is_told(given: dict[str, Any], fields: dict[str, Any], wanted: bool) -> None:
    made = plan(**given)
    made.update(pending(**fields))
    assert bool(told(made, 11)) is wanted
    assert made.is_wanted("req_1") is wanted


def test_a_clock_that_is_set_back_tells_nothing_twice() -> None:
    made = plan()
    made.update(pending())
    assert told(made, 11, -5000, 11) == [(11, ["req_1"])]
