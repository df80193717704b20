"""Where the time of a call went."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hubbub_client.data.records import Call, Moment, PendingRequest
from hubbub_frontend.display.questions import render_request
from hubbub_frontend.display.timeline import build_timeline

BEGIN = datetime(2026, 7, 28, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def call(started: float | None = None, completed: float | None = None) -> Call:
    return Call(
        id="lunch",
        server="demo",
        method="tools/call",
        params={},
        state="completed" if completed else "queued",
        created_at=BEGIN,
        started_at=None if started is None else at(started),
        completed_at=None if completed is None else at(completed),
        result=None,
        error=None,
        pending_ids=(),
        task_id=None,
    )


def question(start: float, *moments: tuple[str, float], **fields: Any) -> PendingRequest:
    known: dict[str, Any] = dict.fromkeys(("delivery", "request", "call_id", "cause_source", "task_id", "deadline"))
    known |= dict.fromkeys(("claim", "answer", "answered_by", "reason"))
    told = tuple(Moment(at=at(when), what=what, by="ann", agent=False) for what, when in moments)  # type: ignore[arg-type]
    known |= {"id": f"req_{start:g}", "server": "demo", "kind": "elicitation_form", "state": "answered"}
    return PendingRequest(**(known | {"created_at": at(start), "moments": told} | fields))


def parts(*args: Any) -> list[tuple[str, float, float]]:
    return [(part.kind, part.start_s, part.end_s) for part in build_timeline(*args).parts]


def test_a_call_is_queued_then_at_its_server_then_with_a_person_and_at_the_server_again() -> None:
    asked = question(3, ("shown", 4), ("claimed", 5), ("answered", 9), ("delivered", 9.5))
    assert parts(call(1, 10), [asked], at(99)) == [
        ("queued", 0, 1),
        ("server", 1, 3),
        ("person", 3, 9),
        ("server", 9, 10),
    ]
    (shown,) = build_timeline(call(1, 10), [asked], at(99)).questions
    assert [(step.what, step.at_s) for step in shown.steps] == [
        ("shown", 4),
        ("claimed", 5),
        ("answered", 9),
        ("delivered", 9.5),
    ]


def test_the_time_of_people_counts_once_however_many_questions_are_open() -> None:
    both = [question(2, ("answered", 6)), question(4, ("answered", 8))]
    assert parts(call(1, 10), both, at(99)) == [("queued", 0, 1), ("server", 1, 2), ("person", 2, 8), ("server", 8, 10)]
    assert build_timeline(call(1, 10), both, at(99)).to_json()["person_share"] == 0.6


def test_the_time_is_summed_up_in_words() -> None:
    assert build_timeline(call(1, 10), [question(2, ("answered", 8))], at(99)).summary == (
        "queued 1.0 s · server 3.0 s · person 6.0 s (60%)"
    )
    assert build_timeline(call(0, 0.5), [], at(99)).summary == "server 500 ms"


def test_what_happened_to_a_question_is_told_in_order() -> None:
    told = str(render_request(question(3, ("shown", 4), ("claimed", 65), ("lapsed", 200), ("withdrawn", 201))))
    happened = told.partition("What happened\n")[2].splitlines()
    assert [" ".join(line.split()) for line in happened] == [
        "1.0 s shown to ann",
        "1 min 2 s claimed by ann",
        "3 min 17 s left by ann",
        "3 min 18 s withdrawn",
    ]


def test_a_call_under_way_lasts_until_now_and_so_does_its_open_question() -> None:
    assert parts(call(), [], at(7)) == [("queued", 0, 7)]
    open_ = question(2, ("shown", 3), state="open")
    assert parts(call(1), [open_], at(7)) == [("queued", 0, 1), ("server", 1, 2), ("person", 2, 7)]


def test_a_question_of_an_older_hub_ends_with_its_answer() -> None:
    old = question(2, answered_at=at(5))
    assert ("person", 2, 5) in parts(call(1, 10), [old], at(99))


def test_parts_lie_within_the_call_and_follow_one_another_without_gaps() -> None:
    odd = [question(-5, ("withdrawn", 30)), question(3, ("expired", 3))]
    found = build_timeline(call(1, 10), odd, at(99))
    assert found.parts[0].start_s == 0
    assert found.parts[-1].end_s == found.total_s == 10
    assert all(one.end_s == two.start_s for one, two in zip(found.parts, found.parts[1:], strict=False))
    assert sum(part.length_s for part in found.parts) == found.total_s


def test_a_call_that_ended_at_once_has_no_parts() -> None:
    assert build_timeline(call(0, 0), [], at(1)).to_json()["person_share"] == 0
