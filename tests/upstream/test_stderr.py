"""Lines on standard error, told as they come, within bounds."""

import sys

import anyio
import pytest

from hubbubd.errors import UpstreamError
from hubbubd.upstream.stdio.stderr import BURST_LINES, NAMED_WITHIN, TAIL_CHARACTERS, TAIL_LINES, Fold, Tail
from hubbubd.upstream.stdio.transport import BRIEF_PAUSE_S

from .conftest import LIMIT_S, Connect, Recorder, open_once

OLD = """
import json, sys
print("listening, no errors so far", file=sys.stderr, flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "server/discover":
        print("No such key: error in settings", "Failed to validate request", "  Input should be 'ping', is", sep="\\n",
              file=sys.stderr)
        print("  'server/discover'", "Ping.method", "  missing", sep="\\n", file=sys.stderr, flush=True)
        said = {"error": {"code": -32602, "message": "Invalid request parameters"}}
    elif asked["method"] == "initialize":
        info = {"name": "old", "version": "1"}
        said = {"result": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}}
        if "refuses" in sys.argv:
            said = {"error": {"code": -1, "message": "out of order"}}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""
"""A server that does not know `server/discover`, and writes so at length."""

ABOUT_THE_PROBE = [
    "Failed to validate request",
    "  Input should be 'ping', is",
    "  'server/discover'",
    "Ping.method",
    "  missing",
]

FOLDED = "(5 lines are left out: this server does not know server/discover, which the hub asks first)"


class Listener:
    """A tail with a clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.told: list[str] = []
        self.tail = Tail(self.told.append, lambda: self.now)


def test_a_line_is_told_once_it_is_whole() -> None:
    it = Listener()
    it.tail.feed(b"one\r\ntw")
    assert it.told == ["one"]
    assert it.tail.lines() == ("one", "tw")
    it.tail.feed(b"o\n\xff")
    assert it.told == ["one", "two"]


def test_what_is_left_at_the_end_is_a_line() -> None:
    it = Listener()
    it.tail.feed(b"no newl")
    it.tail.feed(b"ine")
    it.tail.feed(b"")
    it.tail.feed(b"")
    assert it.told == ["no newline"]
    assert it.tail.lines() == ("no newline",)


def test_of_a_flood_only_the_number_is_told_and_the_end_is_kept() -> None:
    it = Listener()
    it.tail.feed(b"".join(b"%d\n" % n for n in range(BURST_LINES * 3)))
    it.tail.feed(b"more\n")
    assert it.told == [str(n) for n in range(BURST_LINES)]
    assert it.tail.lines()[-1] == "more"
    assert len(it.tail.lines()) == TAIL_LINES
    it.now += 1
    it.tail.feed(b"quiet again\n")
    assert it.told[BURST_LINES:] == [f"({BURST_LINES * 2 + 1} lines are left out)", "quiet again"]


def test_a_line_is_cut() -> None:
    it = Listener()
    it.tail.feed("ü".encode() * 10_000)
    it.tail.feed(b"end\n")
    assert it.told == ["ü" * TAIL_CHARACTERS]


async def test_what_a_server_writes_about_the_probe_is_one_line_once_it_has_connected(
    connect: Connect, recorder: Recorder
) -> None:
    async with connect(command=sys.executable, args=("-c", OLD)) as link:
        assert recorder.stderr == ["listening, no errors so far", "No such key: error in settings", FOLDED]
        assert link.stderr_tail() == ("listening, no errors so far", "No such key: error in settings")


async def test_what_a_server_writes_about_the_probe_is_told_as_it_is_if_it_does_not_connect(
    connect: Connect, recorder: Recorder
) -> None:
    with pytest.raises(UpstreamError):
        await open_once(connect(command=sys.executable, args=("-c", OLD, "refuses")))
    assert recorder.stderr == ["listening, no errors so far", "No such key: error in settings", *ABOUT_THE_PROBE]


def test_a_complaint_about_something_else_is_not_held_back_for_long() -> None:
    told: list[str] = []
    fold = Fold(told.append, lambda _: None, "any")
    fold.hold()
    lines = ["cannot start: error 7", *(f"at {n}" for n in range(NAMED_WITHIN))]
    for line in lines:
        fold.add_line(line)
    assert told == lines
    fold.add_line("Error: no method server/discover")
    fold.fold()
    fold.add_line("error later")
    assert told[len(lines) :] == [FOLDED.replace("5 lines are", "1 line is"), "error later"]


async def test_the_lines_of_a_server_arrive_while_it_runs(connect: Connect, recorder: Recorder) -> None:
    script = "import sys, time; print('starting', file=sys.stderr, flush=True); time.sleep(60)"
    with anyio.move_on_after(LIMIT_S) as limit:
        async with anyio.create_task_group() as tasks:

            async def open_link() -> None:
                await open_once(connect(command=sys.executable, args=("-c", script)))

            tasks.start_soon(open_link)
            await recorder.until(lambda: recorder.stderr == ["starting"])
            tasks.cancel_scope.cancel()
    assert not limit.cancelled_caught


async def test_a_flood_of_short_lines_is_read_at_a_rate_however_fast_it_comes(
    connect: Connect, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, feed = 0, Tail.feed

    def counting(tail: Tail, chunk: bytes) -> None:
        nonlocal reads
        reads += 1
        feed(tail, chunk)

    monkeypatch.setattr(Tail, "feed", counting)
    script = "import os\nwhile True: os.write(2, b'x\\n')"
    begun = anyio.current_time()
    with anyio.move_on_after(60) as limit:
        async with anyio.create_task_group() as tasks:

            async def open_link() -> None:
                await open_once(connect(command=sys.executable, args=("-I", "-S", "-c", script)))

            tasks.start_soon(open_link)
            await recorder.until(lambda: any("left out" in line for line in recorder.stderr))
            tasks.cancel_scope.cancel()
    assert not limit.cancelled_caught
    # What is logged of each second may come line by line; beyond that the hub takes a breath after each read.
    assert reads <= (anyio.current_time() - begun + 1) * (BURST_LINES + 1 / BRIEF_PAUSE_S)
