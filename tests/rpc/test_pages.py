"""Lists in pages that stay right while records come and go."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from hubbub.v1 import call_pb2, inbox_pb2
from hubbub.v1.task_pb2 import ListTasksRequest
from hubbubd.core.access import EVERYTHING, Scope
from hubbubd.errors import InvalidArgument
from hubbubd.rpc.messages import pages


@dataclass(frozen=True)
class Record:
    id: str
    created_at: float
    params: bytes = b""


ANY = call_pb2.CallFilter()


def convert(record: Record) -> call_pb2.Call:
    return call_pb2.Call(id=record.id, params=record.params)


def page(
    records: list[Record],
    size: int = 2,
    token: str = "",
    scope: call_pb2.CallFilter = ANY,
    within: Scope = EVERYTHING,
) -> tuple[str, str]:
    """The ids on a page in one string, and the token of the next."""
    found, following = pages.page_records(
        records,
        ListTasksRequest(page_size=size, page_token=token),
        pages.newest_position,
        convert,
        list_filter=scope,
        scope=within,
    )
    return "".join(call.id for call in found), following


def test_a_page_that_is_just_full_is_the_last_one() -> None:
    assert page([Record("a", 1.0), Record("b", 2.0)]) == ("ba", "")


def test_no_page_of_nothing_has_a_successor() -> None:
    assert page([]) == ("", "")


def test_records_of_the_same_moment_are_neither_lost_nor_repeated() -> None:
    records = [Record(name, 1.5) for name in "abcde"]
    first, token = page(records)
    second, token = page(records, token=token)
    third, _ = page(records, token=token)
    assert sorted(first + second + third) == list("abcde")


def test_what_comes_and_goes_between_two_pages_shifts_nothing() -> None:
    records = [Record(name, at) for at, name in enumerate("abcde")]
    first, token = page(records)
    # The record that the token names is gone, and there is a new one in front.
    later = [*(record for record in records if record.id != "d"), Record("f", 9.0)]
    second, _ = page(later, token=token)
    assert (first, second) == ("ed", "cb")


def test_a_token_is_good_for_its_own_list_only() -> None:
    records = [Record(name, at) for at, name in enumerate("abcde")]
    _, token = page(records)
    with pytest.raises(InvalidArgument, match="another list"):
        page(records, token=token, scope=call_pb2.CallFilter(server="git"))
    with pytest.raises(InvalidArgument, match="another list"):
        pages.page_records(
            records,
            ListTasksRequest(page_token=token),
            pages.newest_position,
            convert,
            list_filter=inbox_pb2.PendingRequestFilter(),
            scope=EVERYTHING,
        )


def test_a_token_is_good_for_those_who_may_see_the_same_only() -> None:
    records = [Record(name, at) for at, name in enumerate("abcde")]
    _, token = page(records)
    with pytest.raises(InvalidArgument, match="another list"):
        page(records, token=token, within=Scope(frozenset({"git"})))


def test_a_page_of_large_records_ends_before_a_client_would_refuse_it() -> None:
    records = [Record(name, at, b"x" * 1_000_000) for at, name in enumerate("abcdefgh")]
    first, token = page(records, size=100)
    assert first == "hgf"
    assert page(records, size=100, token=token)[0] == "edc"


def test_a_record_that_is_too_large_for_any_page_has_one_of_its_own() -> None:
    records = [Record(name, at, b"x" * 9_000_000) for at, name in enumerate("ab")]
    first, token = page(records)
    assert (first, *page(records, token=token)) == ("b", "a", "")


def test_a_page_of_what_is_in_order_looks_at_no_more_than_it_shows() -> None:
    looked_at: list[str] = []

    def rest(after: pages.Position | None) -> Iterator[Record]:
        for at in range(0 if after is None else int(after[0]) + 1, 1_000_000):
            looked_at.append(str(at))
            yield Record(str(at), at)

    asked, ids = ListTasksRequest(page_size=2), []
    for _ in range(3):
        found, token = pages.page_ordered(
            rest, asked, lambda record: (record.created_at, record.id), convert, list_filter=ANY, scope=EVERYTHING
        )
        ids += [call.id for call in found]
        asked = ListTasksRequest(page_size=2, page_token=token)
    assert ids == ["0", "1", "2", "3", "4", "5"]
    assert len(looked_at) == 9
