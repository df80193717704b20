"""The file of sessions: shared by processes, bounded, the latest first."""

from pathlib import Path

from hubbub_acp.sessions.session_file import MAX_STORED, SessionFile, StoredSession
from hubbub_acp.sessions.tool_calls import ToolCalls


def stored(number: int, turns: int = 1) -> StoredSession:
    at = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
    return StoredSession(f"s{number}", "/work", f"Title {number}", at, at, turns)


def test_two_processes_keep_each_others_sessions(tmp_path: Path) -> None:
    SessionFile(tmp_path, "coder", ["agent"]).write([stored(1)])
    other = SessionFile(tmp_path, "coder", ["agent"])
    other.write([stored(2), stored(3)])
    assert other.read() == [stored(3), stored(2), stored(1)]
    other.write([stored(1, turns=2)])
    assert other.read()[-1] == stored(1, turns=2)
    assert SessionFile(tmp_path, "coder", ["another"]).read() == []


def test_the_sessions_used_longest_ago_are_dropped(tmp_path: Path) -> None:
    file = SessionFile(tmp_path, "coder", ["agent"])
    file.write([stored(number) for number in range(MAX_STORED + 5)])
    assert [each.id for each in file.read()] == [f"s{number}" for number in range(MAX_STORED + 4, 4, -1)]


def test_what_was_said_of_a_tool_call_is_kept_until_it_has_ended() -> None:
    calls = ToolCalls()
    asked = {"toolCallId": "t", "title": "Write a.txt"}
    calls.update({"toolCallId": "t", "rawInput": {"path": "a.txt"}}, "now")
    assert calls.complete_request(asked) == {"rawInput": {"path": "a.txt"}, **asked}
    calls.update({"toolCallId": "t", "status": "completed"}, "now")
    assert calls.complete_request(asked) == asked
