"""A call's states, and the clocks that end it."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core.calls.call_states import (
    ENDED,
    TRANSITIONS,
    Call,
    CallClock,
    CallState,
    RoundProgress,
    as_resumed,
    complete,
    fail,
    find_obstacle,
    merge_change,
    move,
    record_failed_creation,
)
from hubbubd.core.servers.connection_states import IllegalTransition
from hubbubd.errors import Category, Fault

QUEUED, IN_PROGRESS, WAITING, COMPLETED, FAILED, CANCELLED = CallState
LEGAL = {
    QUEUED: {IN_PROGRESS, FAILED, CANCELLED},
    IN_PROGRESS: {QUEUED, WAITING, COMPLETED, FAILED, CANCELLED},
    WAITING: {QUEUED, IN_PROGRESS, COMPLETED, FAILED, CANCELLED},
    COMPLETED: set[CallState](),
    FAILED: set[CallState](),
    CANCELLED: set[CallState](),
}
LOST = Fault(code="CONNECTION_LOST", category=Category.CONNECTION, message="lost")
ABORTED = Fault(code="CANCELLED", category=Category.CANCELLED, message="aborted")


def a_call(
    state: CallState = QUEUED, *, server: str = "one", method: str = "tools/call", params: bytes = b"{}"
) -> Call:
    return Call(
        id="c1",
        server=server,
        method=method,
        params=params,
        principal="me",
        detached=False,
        timeout_s=60,
        max_s=300,
        created_at=0.0,
        state=state,
    )


@pytest.mark.parametrize("before", CallState)
@pytest.mark.parametrize("then", CallState)
def test_a_call_moves_only_as_the_table_says(before: CallState, then: CallState) -> None:
    call = a_call(before)
    if then in LEGAL[before]:
        assert move(call, then, 5.0).state is then
    else:
        with pytest.raises(IllegalTransition):
            move(call, then, 5.0)
    assert call == a_call(before)


def test_the_published_table_names_every_state_and_ended_ones_lead_nowhere() -> None:
    assert {state: set(targets) for state, targets in TRANSITIONS.items()} == LEGAL
    assert {state for state in CallState if state.ended} == ENDED == {COMPLETED, FAILED, CANCELLED}


@pytest.mark.parametrize("start", [0.0, 7.0])
def test_a_call_that_is_sent_twice_began_when_it_was_sent_first(start: float) -> None:
    sent = move(a_call(), IN_PROGRESS, start)
    again = move(move(move(sent, WAITING, 20.0), QUEUED, 30.0), IN_PROGRESS, 40.0)
    assert again.started_at == start
    assert again.completed_at is None


def test_a_result_completes_a_call_and_says_when() -> None:
    done = complete(a_call(IN_PROGRESS), b'{"ok":1}', 9.0)
    assert (done.state, done.result, done.completed_at) == (COMPLETED, b'{"ok":1}', 9.0)


@pytest.mark.parametrize(("fault", "state"), [(LOST, FAILED), (ABORTED, CANCELLED)])
@pytest.mark.parametrize("before", [QUEUED, IN_PROGRESS, WAITING])
def test_a_fault_ends_a_call_as_failed_or_cancelled(before: CallState, fault: Fault, state: CallState) -> None:
    ended = fail(a_call(before), fault, 9.0)
    assert (ended.state, ended.fault, ended.completed_at) == (state, fault, 9.0)


def test_an_ended_call_takes_neither_a_result_nor_a_fault() -> None:
    ended = complete(a_call(IN_PROGRESS), b"{}", 1.0)
    with pytest.raises(IllegalTransition):
        complete(ended, b"{}", 2.0)
    with pytest.raises(IllegalTransition):
        fail(ended, ABORTED, 2.0)


BEGUN = move(a_call(), IN_PROGRESS, 1)
ANOTHER = replace(a_call(), created_at=9.0)
OVER = complete(move(a_call(), IN_PROGRESS, 1), b"{}", 2)


@pytest.mark.parametrize(
    ("there", "becomes"),
    [
        (a_call(), BEGUN),
        (replace(a_call(), defect="theirs"), replace(BEGUN, defect="theirs")),
        (OVER, OVER),
        (ANOTHER, ANOTHER),
        (None, None),
    ],
    ids=["as it was", "changed meanwhile", "ended meanwhile", "another call of its id", "deleted"],
)
def test_a_call_goes_on_from_what_is_recorded_but_never_from_an_end(there: Call | None, becomes: Call | None) -> None:
    assert merge_change(a_call(), BEGUN, there) == becomes


@pytest.mark.parametrize("there", [None, a_call(), ANOTHER], ids=["not recorded", "recorded", "another call of its id"])
def test_a_call_that_was_given_up_while_it_was_made_has_failed(there: Call | None) -> None:
    failed = fail(a_call(), LOST, 5)
    assert record_failed_creation(a_call(), failed, there) == (ANOTHER if there is ANOTHER else failed)


def test_a_repeated_call_is_the_same_only_if_it_asks_the_same_of_the_same_server() -> None:
    assert a_call().is_same_request(a_call(COMPLETED))
    assert not a_call().is_same_request(a_call(server="two"))
    assert not a_call().is_same_request(a_call(method="prompts/get"))
    assert not a_call().is_same_request(a_call(params=b'{"a":1}'))


ROUNDS = RoundProgress(count=1, fingerprint="mine")


@pytest.mark.parametrize("state", [QUEUED, IN_PROGRESS, WAITING])
@pytest.mark.parametrize(
    ("rounds", "task_id", "known", "why"),
    [
        (ROUNDS, None, {}, None),
        (ROUNDS, None, {"server_fingerprint": None}, "not configured"),
        (ROUNDS, None, {"server_fingerprint": "other"}, "another one"),
        (ROUNDS, None, {"resume": False}, "resume = false"),
        (ROUNDS, None, {"has_answers": False}, "deleted"),
        (RoundProgress(count=1), None, {}, "another one"),
        (None, None, {}, "carried it out"),
        (None, None, {"server_fingerprint": None}, "not configured"),
        (None, "t", {"task_fingerprint": "mine"}, None),
        (None, "t", {"task_fingerprint": "mine", "resume": False}, None),
        (ROUNDS, "t", {"task_fingerprint": "mine", "resume": False, "has_answers": False}, None),
        (None, "t", {"task_fingerprint": "other"}, "another one"),
        (ROUNDS, "t", {"task_fingerprint": "other"}, "another one"),
        (None, "t", {}, "task is not known"),
        (ROUNDS, "t", {}, "task is not known"),
        (None, "t", {"server_fingerprint": None, "task_fingerprint": "mine"}, "not configured"),
    ],
)
def test_the_next_hub_goes_on_with_a_call_whose_server_knows_how_far_it_is(
    state: CallState, rounds: RoundProgress | None, task_id: str | None, known: dict[str, Any], why: str | None
) -> None:
    call = replace(a_call(state), rounds=rounds, task_id=task_id)
    found = find_obstacle(call, **{"server_fingerprint": "mine", "resume": True, **known})
    assert (found is None) == (why is None)
    assert (why or "") in (found or "")


@pytest.mark.parametrize("state", [QUEUED, IN_PROGRESS, WAITING])
def test_a_call_that_is_taken_up_has_nobody_who_waits_and_is_parked_unless_it_is_a_task(state: CallState) -> None:
    call = as_resumed(replace(a_call(state), rounds=ROUNDS, perhaps_pending_ids=("r1",)))
    assert (call.detached, call.state, call.perhaps_pending_ids) == (True, WAITING, ())
    call = as_resumed(replace(a_call(state), task_id="t"))
    assert (call.detached, call.state) == (True, state)


def test_a_held_clock_has_no_deadline_and_goes_on_with_what_was_left() -> None:
    clock = CallClock(60, 300, 0.0)
    clock.hold(10.0)
    assert clock.deadline() is None
    assert not clock.has_used_up_max(1e9)
    clock.release(100_000.0)
    assert clock.deadline() == 100_050.0


def test_a_clock_runs_again_only_after_as_many_releases_as_holds() -> None:
    clock = CallClock(60, 300, 0.0)
    clock.hold(10.0)
    clock.hold(20.0)
    clock.release(30.0)
    assert clock.deadline() is None
    clock.release(40.0)
    assert clock.deadline() == 90.0


def test_a_clock_that_is_not_held_cannot_be_released() -> None:
    clock = CallClock(60, 300, 0.0)
    with pytest.raises(ValueError, match="not held"):
        clock.release(1.0)
    assert clock.deadline() == 60.0


@given(st.floats(1e9, 2e9), st.floats(0.001, 1e6))
def test_at_the_deadline_that_the_maximum_sets_the_maximum_has_run_out(start: float, max_s: float) -> None:
    clock = CallClock(1e7, max_s, start)
    deadline = clock.deadline()
    assert deadline is not None
    assert clock.has_used_up_max(deadline)


moves = st.tuples(st.sampled_from(["hold", "release", "restart", "wait"]), st.integers(0, 1000).map(lambda n: n / 8))


@given(st.integers(1, 600), st.integers(1, 600), st.lists(moves, max_size=40))
def test_a_clock_agrees_with_adding_up_the_time_that_was_not_held(
    timeout_s: int, max_s: int, happenings: list[tuple[str, float]]
) -> None:
    """Times are eighths of a second, so that sums of floats are exact."""
    clock = CallClock(timeout_s, max_s, 0.0)
    now, holds, ran, ran_in_all = 0.0, 0, 0.0, 0.0
    for action, passed in happenings:
        now += passed
        if not holds:
            ran += passed
            ran_in_all += passed
        match action:
            case "hold":
                clock.hold(now)
                holds += 1
            case "release" if holds:
                clock.release(now)
                holds -= 1
            case "restart":
                clock.restart(now)
                ran = 0.0
            case _:
                pass
        left = math.inf if holds else min(timeout_s - ran, max_s - ran_in_all)
        assert clock.deadline() == (None if holds else now + left)
        assert clock.has_used_up_max(now) == (not holds and ran_in_all >= max_s)
