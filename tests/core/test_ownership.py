"""Who has which server, by what a member knows of leases and of other members."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core.servers.ownership import TURN_S, MemberView
from hubbubd.core.servers.server_record import UPKEEP, Lease
from hubbubd.members import Member, MemberStatus

STORE = "store"


def member(name: str, term: int = 1, status: MemberStatus = MemberStatus.LIVE, *, overdue: bool = False) -> Member:
    return Member(
        name=name,
        term=term,
        status=status,
        address="",
        forward="",
        version="",
        position=0,
        overdue=overdue,
    )


def lease(holder: str = "", life: int = 1, server: str = "s", store: str = STORE, wish: str = "") -> Lease:
    return Lease(server=server, store=store, member=holder, life=life, wish=wish)


def view(*members: Member, leases: tuple[Lease, ...] = (), **known: Any) -> MemberView:
    return MemberView(
        **{
            "me": "a",
            "term": 1,
            "store": STORE,
            "members": {each.name: each for each in members},
            "leases": {each.server: each for each in leases},
            "free_since": {},
            "now": 0.0,
            **known,
        }
    )


def any_server(_server: str) -> float | None:
    return 0.0


A, B, C = member("a"), member("b"), member("c")


@pytest.mark.parametrize(
    ("known", "held", "free"),
    [
        ((A,), None, True),
        ((A,), lease(), True),
        ((A, B), lease("b"), False),
        ((A, member("b", overdue=True)), lease("b"), False),
        ((A, member("b", status=MemberStatus.DRAINING)), lease("b"), False),
        ((A, member("b", status=MemberStatus.GONE)), lease("b"), True),
        ((A, member("b", 2)), lease("b", 1), True),
        ((A, member("b", 2)), lease("b", 3), False),
        ((A, member("c", 9)), lease("b", 3), True),
        ((A, C), lease("b", 3), False),
        ((A, B), lease("b", store="another"), True),
    ],
    ids=[
        "never had",
        "given up",
        "held",
        "held by one that is late",
        "held by one that drains",
        "its holder is gone",
        "its holder has restarted",
        "its holder has started since this one looked",
        "its holder was forgotten",
        "its holder has joined since this one looked",
        "of a store that this one is a copy of",
    ],
)
def test_a_server_is_free_if_it_is_certainly_nobodys(known: tuple[Member, ...], held: Lease | None, free: bool) -> None:
    assert view(*known, leases=(held,) if held else ()).is_free("s") is free


def test_all_members_agree_on_whose_turn_it_is() -> None:
    views = [view(*members, me=name) for name in "abc" for members in ((A, B, C), (C, B, A))]
    for server in map(str, range(20)):
        assert len({tuple(each.takers_in_order(server)) for each in views}) == 1
    assert {views[0].takers_in_order(str(number))[0] for number in range(20)} == {"a", "b", "c"}


def test_first_comes_for_whom_it_was_given_up_then_who_had_it() -> None:
    for name in "abc":
        assert view(A, B, C, leases=(lease(wish=name),)).takers_in_order("s")[0] == name
        assert view(A, B, C, leases=(lease(name, 0),)).takers_in_order("s")[0] == name


@pytest.mark.parametrize("out", [member("b", status=MemberStatus.DRAINING), member("b", overdue=True)])
def test_who_does_not_serve_has_no_turn(out: Member) -> None:
    assert view(A, out, leases=(lease(wish="b"),)).takers_in_order("s") == ["a"]
    assert view(A, out, me="b").servers_to_take(["s"], any_server) == []


def test_each_waits_for_its_turn_and_for_reasons_of_its_own() -> None:
    first, second, third = view(A, B, C).takers_in_order("s")
    for turn, name in enumerate((first, second, third)):
        at = 10 + turn * TURN_S
        assert view(A, B, C, me=name, free_since={"s": 10}, now=at - 0.01).servers_to_take(["s"], any_server) == []
        assert view(A, B, C, me=name, free_since={"s": 10}, now=at).servers_to_take(["s"], any_server) == ["s"]
        assert view(A, B, C, me=name, free_since={"s": 10}, now=at + 4).servers_to_take(["s"], lambda _: 5.0) == []
        assert view(A, B, C, me=name, free_since={"s": 10}, now=at + 5).servers_to_take(["s"], lambda _: 5.0) == ["s"]
        assert view(A, B, C, me=name, free_since={"s": 10}, now=at + 500).servers_to_take(["s"], lambda _: None) == []


def test_whoever_has_started_anew_takes_nothing_in_its_former_life() -> None:
    assert view(member("a", 2)).servers_to_take(["s"], any_server) == []
    assert view(B).servers_to_take(["s"], any_server) == []


def test_the_late_are_named_but_not_oneself() -> None:
    late = member("b", overdue=True)
    gone = member("c", status=MemberStatus.GONE, overdue=True)
    assert view(member("a", overdue=True), late, gone).overdue_members() == [late]


def test_a_server_is_handed_on_only_by_whoever_has_too_many() -> None:
    mine = tuple(lease("a", server=f"s{number}") for number in range(4))
    found = view(A, B, leases=mine).choose_handover(lambda _: True)
    assert found[1] == "b"
    assert view(A, B, leases=mine).choose_handover(lambda _: False) is None
    assert view(A, B, leases=mine, me="b").choose_handover(lambda _: True) is None
    assert view(A, leases=mine).choose_handover(lambda _: True) is None
    assert view(A, member("b", status=MemberStatus.DRAINING), leases=mine).choose_handover(lambda _: True) is None


def test_one_server_and_the_upkeep_stay_where_they_are() -> None:
    assert view(A, B, leases=(lease("a"), lease("a", server=UPKEEP))).choose_handover(lambda _: True) is None


@given(st.integers(1, 40), st.integers(2, 7))
def test_what_is_handed_on_ends_with_fair_shares(servers: int, count: int) -> None:
    members = [member(chr(ord("a") + number)) for number in range(count)]
    held = {f"s{number}": "a" for number in range(servers)}
    for _ in range(10 * servers):
        leases = tuple(lease(name, server=server) for server, name in held.items())
        moves = [view(*members, leases=leases, me=each.name).choose_handover(lambda _: True) for each in members]
        found = [move for move in moves if move is not None]
        if not found:
            break
        held.update(found)
    else:
        raise AssertionError("servers are handed on for ever")
    shares = [sum(name == each.name for name in held.values()) for each in members]
    share = servers / count
    assert max(shares) <= max(share * 1.2, share + 1)
