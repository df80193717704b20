"""What the hub makes of what a server says of a task."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core import tasks
from hubbubd.core.tasks import Task, TaskRole, TaskStatus


def a_task(**fields: Any) -> Task:
    basic: dict[str, Any] = {
        "id": "T",
        "server": "one",
        "fingerprint": "f",
        "role": TaskRole.CLIENT,
        "method": "tools/call",
    }
    return Task(**{**basic, "created_at": 1.0, "last_updated_at": 1.0, "ttl_ms": None, **fields})


def wire(status: str, **more: Any) -> dict[str, Any]:
    return {"taskId": "T", "status": status, "pollInterval": 1000, **more}


def test_nothing_new_is_the_same_object() -> None:
    before = tasks.after_report(a_task(), wire("working", statusMessage="half"), 2.0)
    assert before.last_updated_at == 2.0
    assert tasks.after_report(before, wire("working", statusMessage="half"), 3.0) is before


@pytest.mark.parametrize("names", [("ttl", "pollInterval"), ("ttlMs", "pollIntervalMs")])
def test_both_revisions_name_the_times_in_their_own_way(names: tuple[str, str]) -> None:
    seen = tasks.after_report(a_task(), {"status": "working", names[0]: 5000, names[1]: 70}, 2.0)
    assert (seen.ttl_ms, seen.poll_interval_ms) == (5000, 70)


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_an_end_without_what_it_ended_with_is_not_taken_over(status: str) -> None:
    before = a_task()
    assert tasks.after_report(before, wire(status), 2.0) is before


@given(st.sampled_from(sorted(tasks.ENDED)), st.sampled_from(list(TaskStatus)))
def test_nothing_changes_a_task_that_has_ended(ended: TaskStatus, said: TaskStatus) -> None:
    before = a_task(status=ended)
    assert tasks.after_report(before, wire(said.value, statusMessage="more"), 2.0) is before


@given(st.none() | st.integers(0, 10**12))
def test_the_time_between_polls_is_bounded(interval_ms: int | None) -> None:
    wait_s = tasks.poll_s(a_task(poll_interval_ms=interval_ms))
    assert tasks.SHORTEST_POLL_S <= wait_s <= tasks.LONGEST_POLL_S


@pytest.mark.parametrize("remote_id", ["", "x" * 129, "a\nb", "ä", "\ud800"])
def test_an_id_that_is_no_name_is_not_used_as_one(remote_id: str) -> None:
    assert tasks.usable_remote_id(remote_id) is None


def test_a_result_is_a_task_only_where_a_task_was_asked_for_or_the_server_decides() -> None:
    task = wire("working")
    flat = {"resultType": "task", **task}
    assert tasks.find_created_task("tools/call", {"task": {}}, {"task": task}, stateless=False) == task
    assert tasks.find_created_task("tools/call", {}, {"task": task}, stateless=False) is None
    assert tasks.find_created_task("tools/call", {"task": {}}, {"content": []}, stateless=False) is None
    assert tasks.find_created_task("tools/call", {}, flat, stateless=True) == flat
    assert tasks.find_created_task("tools/call", {}, {"resultType": "complete"}, stateless=True) is None
    assert tasks.find_created_task("prompts/get", {}, flat, stateless=True) is None
