"""Server-sent events: what a stream means, wherever it is cut, and what is kept of it."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.upstream.http.streams.event_parser import LONGEST_ID, EventParser, EventTooLong, ServerSentEvent

from .test_work_per_byte import peak

LIMIT = 16 * 1024 * 1024


def read_all(pieces: Iterable[bytes], limit: int) -> tuple[list[ServerSentEvent], str, int | None, bool]:
    """The events of a stream, what is remembered of it, and whether an event was too long."""
    events, found = EventParser(limit), list[ServerSentEvent]()
    try:
        for piece in pieces:
            found.extend(events.feed(piece))
    except EventTooLong:
        return found, "", None, True
    return found, events.last_id, events.retry_ms, False


PARTS = [
    b"data:",
    b"data",
    b"{",
    b"x",
    b"\r",
    b"\n",
    b"\r\n",
    b":c",
    b"id: 7",
    b"event:e",
    b"retry: 5",
    b" ",
    b"\xef\xbb\xbf",
]


@given(st.lists(st.sampled_from(PARTS), max_size=40))
def test_an_event_stream_may_be_cut_anywhere(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert read_all((bytes([byte]) for byte in data), 24) == read_all([data], 24)


@given(st.lists(st.sampled_from(["x", "", " y", ":z"]), max_size=4), st.sampled_from([b"\n", b"\r", b"\r\n"]))
def test_an_event_is_what_was_written_whatever_its_lines_end_with(lines: list[str], end: bytes) -> None:
    written = [b":comment", b"event: e", b"id: 7", *(b"data: " + line.encode() for line in lines), b"unknown: 1", b""]
    found, last_id, _, _ = read_all([end.join(written) + end], LIMIT)
    assert found == [ServerSentEvent("e", "\n".join(lines).encode())]
    assert last_id == "7"


def test_what_is_remembered_is_the_id_of_an_event_that_came_whole() -> None:
    events = EventParser(LIMIT)
    assert list(events.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n")) == [ServerSentEvent("message", b"a")]
    assert events.last_id == "1"
    assert list(events.feed(b"\n")) == [ServerSentEvent("message", b"b")]
    assert events.last_id == "2"


@pytest.mark.parametrize("line", [b"id: a\0b", b"id: " + b"x" * (LONGEST_ID + 1)])
def test_an_id_that_no_header_can_have_is_not_remembered(line: bytes) -> None:
    events = EventParser(LIMIT)
    assert list(events.feed(b"id: 1\n\n" + line + b"\ndata: a\n\n"))[-1] == ServerSentEvent("message", b"a")
    assert events.last_id == "1"


def test_an_event_that_never_ends_is_refused_and_no_more_of_it_is_kept_than_is_allowed() -> None:
    limit = LIMIT // 8
    part = b"data:" + b"x" * 10_000 + b"\n"
    fits = limit // (len(part) - 1)

    def run() -> None:
        events = EventParser(limit)
        for _ in range(fits):
            assert list(events.feed(part)) == []
        with pytest.raises(EventTooLong, match=f"an event is larger than {limit} bytes"):
            list(events.feed(part))

    assert peak(run) < 1.5 * limit


def test_events_of_any_number_whose_lines_end_with_a_carriage_return_are_short() -> None:
    events = EventParser(4096)
    for _ in range(100):
        assert len(list(events.feed(b"data:\r\r:" + b"x" * 4000 + b"\r\r\n"))) == 1
