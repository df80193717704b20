"""What hosts' own commands say of a server, as the programs of November 2026 print it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub_local.hosts.listings import MAX_LINES, find_listed_server, find_warnings, split_lines

CLAUDE = """\
Checking MCP server health…

good: /w/hubbub --data-dir /d mcp - ✔ Connected
bad: http://127.0.0.1:7881/mcp (HTTP) - ✘ Failed to connect — Server rejected it (HTTP 401). Error detail: {"a":"b - c"}
auth: https://hub.example/mcp (HTTP) - ! Needs authentication
new: /usr/bin/true  - ⏸ Pending approval (run `claude` to approve)
off: /w/python x.py - ⊘ Disabled for this project (re-enable via /mcp)
"""
CODEX = """\
Name    Command        Args  Env  Cwd  Status    Auth
good    /w/disabled/x  mcp   -    -    enabled   Unsupported
off     /w/hubbub      mcp   -    -    disabled  Unsupported

Name  Url                    Bearer Token Env Var  Status   Auth
auth  http://127.0.0.1/mcp   -                     enabled  Not logged in
"""
OPENCODE = """\
\x1b[0m
┌  MCP Servers
│
●  ✓ good \x1b[90mconnected
│      \x1b[90m/w/hubbub mcp
│
●  ⚠ auth \x1b[90mneeds authentication
│      \x1b[90mhttp://127.0.0.1:7881/mcp
│
●  ✗ bad \x1b[90mfailed
│      ENOENT: no such file or directory
│      \x1b[90m/nonexistent
│
●  ○ off \x1b[90mdisabled
│
└  4 server(s)
"""
GEMINI = """\
Warning: MCP servers are configured but disabled because this folder is untrusted.

Configured MCP servers:

\x1b[32m✓\x1b[0m good: /w x (stdio) - Connected
✗ bad: /nonexistent  (stdio) - Disconnected
⛔ off: /w/python s.py (stdio) - Blocked
○ quiet: /w/hubbub mcp (stdio) - Disabled
"""
COPILOT = "User servers:\n  good (local)\n  off (local, disabled)\n"

LISTED = [
    (CLAUDE, "good", "connected"),
    (CLAUDE, "bad", "failed"),
    (CLAUDE, "auth", "needs log-in"),
    (CLAUDE, "new", "not approved"),
    (CLAUDE, "off", "switched off"),
    (CODEX, "good", "listed"),
    (CODEX, "off", "switched off"),
    (CODEX, "auth", "needs log-in"),
    (OPENCODE, "good", "connected"),
    (OPENCODE, "auth", "needs log-in"),
    (OPENCODE, "bad", "failed"),
    (OPENCODE, "off", "switched off"),
    (GEMINI, "good", "connected"),
    (GEMINI, "bad", "failed"),
    (GEMINI, "off", "switched off"),
    (GEMINI, "quiet", "switched off"),
    (COPILOT, "good", "listed"),
    (COPILOT, "off", "switched off"),
]


@pytest.mark.parametrize(("output", "name", "state"), LISTED)
def test_the_state_of_a_server_is_read_as_its_host_says_it(output: str, name: str, state: str) -> None:
    found = find_listed_server(split_lines(output), name)
    assert found is not None
    assert found.state == state


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_what_a_host_says_more_of_a_server_is_kept_without_ornament(line_end: str) -> None:
    found = find_listed_server(split_lines(OPENCODE.replace("\n", line_end)), "bad")
    assert found is not None
    assert found.lines == ("bad failed", "ENOENT: no such file or directory", "/nonexistent")


@pytest.mark.parametrize("name", ["goo", "Status", "d"])
def test_a_part_of_another_name_is_no_server(name: str) -> None:
    assert all(find_listed_server(split_lines(output), name) is None for output in (CLAUDE, OPENCODE, GEMINI, COPILOT))


def test_warnings_of_the_program_are_kept() -> None:
    assert find_warnings(split_lines(GEMINI)) == [
        "Warning: MCP servers are configured but disabled because this folder is untrusted."
    ]


@given(output=st.text(max_size=300), name=st.text("hub.-[(", min_size=1, max_size=5))
def test_any_output_is_read_within_bounds(output: str, name: str) -> None:
    found = find_listed_server(split_lines(output + f"\n{name} " + output), name)
    assert found is None or len(found.lines) <= MAX_LINES
