"""What was sent to whom, on disk."""

import stat
from pathlib import Path

import pytest

from hubbub_notify.sent_log import SentLog, SentLogProblem


def opened(folder: Path, owner: str = "notify") -> SentLog:
    return SentLog(folder / "notify" / "told.db", owner)


def test_a_request_is_begun_for_a_target_once_whoever_asks(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    assert one.begin_attempt("n1", "target", ["a", "b"]) == ["a", "b"]
    assert other.begin_attempt("n2", "target", ["a", "b", "c"]) == ["c"]
    assert other.begin_attempt("n2", "another", ["a"]) == ["a"]


def test_only_what_failed_is_begun_again(tmp_path: Path) -> None:
    state = opened(tmp_path)
    for end in ("sent", "failed", "gave_up", "unknown"):
        state.begin_attempt(end, "target", [end])
        state.end_attempt(end, "target", end)
    assert state.begin_attempt("again", "target", ["sent", "failed", "gave_up", "unknown"]) == ["failed"]


def test_what_was_cut_off_is_known_afterwards_and_not_begun_again(tmp_path: Path) -> None:
    killed = opened(tmp_path)
    killed.begin_attempt("n1", "target", ["a"])
    killed.begin_attempt("n2", "target", ["b"])
    killed.end_attempt("n2", "target", "failed")
    opened(tmp_path, "push").begin_attempt("n3", "target", ["c"])
    killed.close()
    state = opened(tmp_path)
    assert state.mark_cut_off(["target"]) == ["a"]
    assert state.mark_cut_off(["target"]) == []
    assert state.list_notified_requests(["target"]) == {"a", "c"}
    assert state.begin_attempt("n4", "target", ["a", "b"]) == ["b"]


def test_the_outcome_counts_of_an_attempt_that_another_service_took_for_cut_off(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    one.begin_attempt("n1", "target", ["a"])
    assert other.mark_cut_off(["target"]) == ["a"]
    one.end_attempt("n1", "target", "failed")
    assert one.begin_attempt("n1", "target", ["a"]) == ["a"]
    one.end_attempt("n1", "target", "sent")
    one.end_attempt("n1", "target", "failed")
    assert one.begin_attempt("n1", "target", ["a"]) == []


def test_a_request_is_told_once_every_target_was(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.begin_attempt("n1", "one", ["a", "b"])
    state.begin_attempt("n2", "two", ["a"])
    assert state.list_notified_requests(["one", "two"]) == {"a"}
    assert state.list_notified_requests(["one"]) == {"a", "b"}
    assert state.list_notified_requests([]) == set()


def test_times_of_notifications_are_kept_for_each_service(tmp_path: Path) -> None:
    state = opened(tmp_path)
    for at in (30.0, 10.0, 20.0):
        state.record_notice(at)
    opened(tmp_path, "push").record_notice(15.0)
    assert opened(tmp_path).list_notice_times(10.0) == [20.0, 30.0]


def test_old_entries_go_with_their_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = opened(tmp_path)
    monkeypatch.setattr("time.time", lambda: 1000.0)
    state.begin_attempt("n1", "target", ["gone", "open"])
    monkeypatch.setattr("time.time", lambda: 1000.0 + 8 * 86400)
    state.begin_attempt("n2", "target", ["new"])
    state.delete_old({"open"})
    assert state.list_notified_requests(["target"]) == {"open", "new"}


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    opened(tmp_path)
    file = tmp_path / "notify" / "told.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "notify" / "told.db"
    file.parent.mkdir()
    file.write_text("this is no store, whatever it is" * 100)
    with pytest.raises(SentLogProblem, match=r"told\.db cannot be used: file is not a database"):
        opened(tmp_path)
