"""A task's states, its life, its looks on the wire, and its pages."""

import base64
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core.servers.connection_states import IllegalTransition
from hubbubd.core.tasks import (
    ENDED,
    GRACE_S,
    TRANSITIONS,
    TTL_CEILING_S,
    TTL_FLOOR_S,
    Task,
    TaskRole,
    TaskStatus,
    complete,
    expires_at,
    fail,
    grant_ttl_ms,
    move,
    paginate,
    to_wire,
)

WORKING, INPUT_REQUIRED, COMPLETED, FAILED, CANCELLED = TaskStatus
ENDS = {COMPLETED, FAILED, CANCELLED}
LEGAL = {
    WORKING: {INPUT_REQUIRED, *ENDS},
    INPUT_REQUIRED: {WORKING, *ENDS},
    COMPLETED: set[TaskStatus](),
    FAILED: set[TaskStatus](),
    CANCELLED: set[TaskStatus](),
}
FLOOR_MS, CEILING_MS = int(TTL_FLOOR_S * 1000), int(TTL_CEILING_S * 1000)


def a_task(task_id: str = "t1", created_at: float = 1000.0, **fields: Any) -> Task:
    return Task(
        **{
            "id": task_id,
            "server": "one",
            "fingerprint": "f",
            "role": TaskRole.RECEIVER,
            "method": "sampling/createMessage",
            "created_at": created_at,
            "last_updated_at": created_at,
            "ttl_ms": 600_000,
            **fields,
        }
    )


@pytest.mark.parametrize("before", TaskStatus)
@pytest.mark.parametrize("then", TaskStatus)
def test_a_task_moves_only_as_the_specification_says(before: TaskStatus, then: TaskStatus) -> None:
    task = a_task(status=before)
    if then in LEGAL[before]:
        moved = move(task, then, 1005.0, "why")
        assert (moved.status, moved.last_updated_at, moved.status_message) == (then, 1005.0, "why")
        assert moved.created_at == task.created_at
    else:
        with pytest.raises(IllegalTransition):
            move(task, then, 1005.0)
    assert task == a_task(status=before)


def test_the_published_table_names_every_status_and_terminal_is_final() -> None:
    assert {status: set(targets) for status, targets in TRANSITIONS.items()} == LEGAL
    assert {status for status in TaskStatus if status.ended} == ENDED == ENDS


def test_a_result_completes_a_task_and_an_error_fails_it_with_its_message() -> None:
    assert complete(a_task(), b'{"action":"decline"}', 1001.0).result == b'{"action":"decline"}'
    failed = fail(a_task(), b'{"code":-1,"message":"no"}', "no", 1001.0)
    assert (failed.status, failed.error, failed.status_message) == (FAILED, b'{"code":-1,"message":"no"}', "no")


@pytest.mark.parametrize("end", [lambda t: complete(t, b"{}", 1.0), lambda t: fail(t, b"{}", "x", 1.0)])
def test_a_cancelled_task_takes_neither_result_nor_error(end: Any) -> None:
    cancelled = move(a_task(), CANCELLED, 1001.0)
    with pytest.raises(IllegalTransition):
        end(cancelled)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (600_000, 600_000),
        (600_000.9, 600_000),
        (1, FLOOR_MS),
        (0, FLOOR_MS),
        (-5, FLOOR_MS),
        (float("-inf"), FLOOR_MS),
        (FLOOR_MS - 1, FLOOR_MS),
        (CEILING_MS + 1, CEILING_MS),
        (float("inf"), CEILING_MS),
        (10**400, CEILING_MS),
        (-(10**400), FLOOR_MS),
        (float("nan"), 3_600_000),
        (None, 3_600_000),
        (True, 3_600_000),
        (False, 3_600_000),
        ("600000", 3_600_000),
        ([600_000], 3_600_000),
        ({}, 3_600_000),
    ],
)
def test_a_requested_ttl_is_kept_within_bounds_and_garbage_gets_the_default(asked: object, expected: int) -> None:
    actual = grant_ttl_ms(asked, 3600)
    assert (actual, type(actual)) == (expected, int)


@pytest.mark.parametrize(("default_s", "expected"), [(1, FLOOR_MS), (1e12, CEILING_MS)])
def test_the_default_ttl_is_bounded_like_any_other(default_s: float, expected: int) -> None:
    assert grant_ttl_ms(None, default_s) == expected


@given(st.one_of(st.integers(), st.floats(), st.text(), st.booleans(), st.none(), st.lists(st.integers())))
def test_any_requested_ttl_gives_a_life_within_the_bounds(asked: object) -> None:
    assert FLOOR_MS <= grant_ttl_ms(asked, 3600) <= CEILING_MS


def test_a_task_expires_its_ttl_after_its_creation() -> None:
    assert expires_at(a_task()) == 1600.0
    assert expires_at(a_task(status=INPUT_REQUIRED, last_updated_at=1599.0)) == 1600.0


@pytest.mark.parametrize("end", sorted(ENDS))
def test_a_task_that_just_ended_can_be_fetched_for_a_grace_time(end: TaskStatus) -> None:
    assert expires_at(move(a_task(), end, 1599.0)) == 1599.0 + GRACE_S
    assert expires_at(move(a_task(), end, 1001.0)) == 1600.0, "the grace never shortens a life"


def test_a_task_without_a_ttl_never_expires() -> None:
    assert expires_at(a_task(ttl_ms=None)) is None
    assert expires_at(a_task(ttl_ms=None, status=COMPLETED)) is None


def test_a_task_on_the_wire_is_flat_with_iso_times() -> None:
    task = a_task(created_at=0.0, last_updated_at=1_700_000_000.125, status_message="asking")
    assert to_wire(task) == {
        "taskId": "t1",
        "status": "working",
        "statusMessage": "asking",
        "createdAt": "1970-01-01T00:00:00.000Z",
        "lastUpdatedAt": "2023-11-14T22:13:20.125Z",
        "ttl": 600_000,
        "pollInterval": 1000,
    }


def test_a_ttl_of_null_is_said_and_what_is_optional_is_left_out() -> None:
    wire = to_wire(a_task(ttl_ms=None, poll_interval_ms=None))
    assert wire["ttl"] is None
    assert wire.keys() == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl"}


@given(st.floats(0, 4e9))
def test_times_on_the_wire_read_back_to_the_millisecond(at: float) -> None:
    read = datetime.fromisoformat(to_wire(a_task(created_at=at))["createdAt"])
    assert read.tzinfo == UTC
    assert read.timestamp() == pytest.approx(at, abs=0.0011)


def pages_of(tasks: list[Task], size: int) -> list[list[str]]:
    pages, cursor = [], None
    while True:
        found, cursor = paginate(tasks, cursor, size)
        pages.append([task.id for task in found])
        if cursor is None:
            return pages


@given(
    st.lists(st.tuples(st.floats(0, 4e9), st.text(min_size=1, max_size=5)), unique=True, max_size=30),
    st.integers(1, 7),
)
def test_pages_put_together_are_the_sorted_list_whatever_the_ids(made: list[tuple[float, str]], size: int) -> None:
    tasks = [a_task(task_id, created_at) for created_at, task_id in made]
    found = pages_of(tasks, size)
    assert [task_id for one in found for task_id in one] == [task_id for _, task_id in sorted(made)]
    assert all(len(one) == size for one in found[:-1])
    assert found[-1] or not made, "no empty page at the end"


def test_a_cursor_survives_that_its_task_is_forgotten_and_that_others_come() -> None:
    tasks = [a_task(f"t{n}", 1000.0 + n) for n in range(4)]
    first, cursor = paginate(tasks, None, 2)
    assert [task.id for task in first] == ["t0", "t1"]
    changed = [tasks[0], *tasks[2:], a_task("new", 2000.0)]
    assert [task.id for task in paginate(changed, cursor, 9)[0]] == ["t2", "t3", "new"]
    assert paginate([], cursor, 2) == ([], None)


def test_a_task_that_changes_keeps_its_place() -> None:
    tasks = [a_task(f"t{n}", 1000.0 + n) for n in range(3)]
    _, cursor = paginate(tasks, None, 1)
    tasks[2] = replace(tasks[2], last_updated_at=1.0, status=COMPLETED)
    assert [task.id for task in paginate(tasks, cursor, 9)[0]] == ["t1", "t2"]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "garbage",
        "====",
        "\x00",
        "\ud800",
        "ü",
        "MTAwMA==",
        *(
            base64.urlsafe_b64encode(text).decode()
            for text in (b"nan t1", b"inf t1", b"x t1", b" ", b"\xff 1", b"1e999 t")
        ),
        0,
        1.5,
        True,
        b"MTAwMC4wIHQx",
        [],
        {},
    ],
)
def test_a_cursor_that_is_not_ours_is_refused(cursor: object) -> None:
    with pytest.raises(ValueError):
        paginate([a_task()], cursor, 2)


@given(st.one_of(st.text(st.characters()), st.binary().map(lambda b: base64.urlsafe_b64encode(b).decode())))
def test_no_string_makes_paging_fail_in_another_way(cursor: str) -> None:
    try:
        found, _ = paginate([a_task()], cursor, 2)
    except ValueError:
        return
    assert len(found) <= 1
