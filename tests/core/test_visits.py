"""Codes, as people type them, and how long one says who sits at a browser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.logins import visits
from hubbubd.core.logins.visits import ALPHABET, CODE_S, ENDED_CODE_RETENTION_S, PLAIN_VISIT_S, VISIT_S

ADA = Principal(name="ada", grants=(Grant(Role.CALLER),), credential="token:1")
LETTERS = st.text(ALPHABET, min_size=8, max_size=8)
CODE = visits.new_login_code("ABCD-EFGH", ADA, 100.0)


@pytest.mark.parametrize("typed", ["ABCD-EFGH", "abcdefgh", " abcd efgh ", "ab-cd-ef-gh", "ABCD\N{EN DASH}EFGH\n"])
def test_a_code_is_read_however_it_was_typed(typed: str) -> None:
    assert visits.read_code(typed) == "ABCD-EFGH"


@pytest.mark.parametrize(
    "typed",
    ["", "ABCD", "ABCD-EFGHJ", "ABCD-EFG1", "ABCD-EFGO", "ABCD-EFG\N{CYRILLIC CAPITAL LETTER ES}", "A" * 100, "\0" * 8],
)
def test_what_is_no_code_is_none(typed: str) -> None:
    assert visits.read_code(typed) is None


@given(LETTERS, st.lists(st.integers(0, 8), max_size=6), st.booleans())
def test_every_code_is_read_back_with_spaces_and_dashes_anywhere(letters: str, places: list[int], lower: bool) -> None:
    typed = letters.lower() if lower else letters
    for place in places:
        typed = f"{typed[:place]}- {typed[place:]}"
    assert visits.read_code(typed) == visits.format_code(letters)


@given(st.text(max_size=80))
def test_whatever_was_typed_is_a_code_or_nothing(typed: str) -> None:
    code = visits.read_code(typed)
    assert code is None or (len(code) == 9 and set(code) <= {*ALPHABET, "-"})


def test_a_code_is_good_until_it_is_used_or_expires_and_is_remembered_for_a_while() -> None:
    assert CODE.is_good(100.0)
    assert CODE.is_good(99.0 + CODE_S)
    assert not CODE.is_good(100.0 + CODE_S)
    assert not CODE.may_be_deleted(99.0 + CODE_S + ENDED_CODE_RETENTION_S)
    assert CODE.may_be_deleted(100.0 + CODE_S + ENDED_CODE_RETENTION_S)


@pytest.mark.parametrize(("secure", "lasts_s"), [(True, VISIT_S), (False, PLAIN_VISIT_S)])
def test_a_visit_is_shorter_where_other_programs_of_the_machine_see_the_cookie(secure: bool, lasts_s: float) -> None:
    visit = visits.new_visit("x", CODE, 200.0, secure=secure)
    found = visits.find_visitor(visit, 199.0 + lasts_s)
    assert (found.name, found.credential, found.until) == ("ada", "token:1", 200.0 + lasts_s)
    assert visits.find_visitor(visit, 200.0 + lasts_s) is None


def test_a_visit_is_over_with_the_credential_that_it_comes_from() -> None:
    soon = Principal(name="ada", grants=ADA.grants, credential="token:1", expires_at=300.0)
    visit = visits.new_visit("x", visits.new_login_code("ABCD-EFGH", soon, 100.0), 200.0, secure=True)
    found = visits.find_visitor(visit, 299.0)
    assert found.until == 300.0
    assert visits.find_visitor(visit, 300.0) is None


def test_a_visitor_speaks_for_nobody_else_though_the_credential_may() -> None:
    owner = Principal(name="ada", grants=ADA.grants, credential="local", may_name_others=True)
    found = visits.find_visitor(
        visits.new_visit("x", visits.new_login_code("ABCD-EFGH", owner, 0.0), 0.0, secure=True), 1.0
    )
    assert not found.principal.may_name_others


@pytest.mark.parametrize(
    ("value", "is_one"),
    [("a" * 43, True), ("-_" * 21 + "9", True), ("a" * 42, False), ("a" * 44, False), ("é" * 43, False), ("", False)],
)
def test_only_what_looks_like_a_cookie_of_a_hub_is_looked_up(value: str, is_one: bool) -> None:
    assert visits.is_cookie(value) is is_one
