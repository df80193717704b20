"""The digest of what is approved: that of RFC 8785, and one that a megabyte does not make slow."""

import hashlib
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core.approvals.requests import MAX_EXACT_BYTES, canonical_digest

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXTS
FRACTIONS = st.floats(allow_nan=False, allow_infinity=False)


def values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=20)


@given(values(PLAIN | FRACTIONS))
def test_the_digest_is_that_of_the_canonical_form(value: Any) -> None:
    assert canonical_digest(value) == f"sha256:{hashlib.sha256(rfc8785.dumps(value)).hexdigest()}"


@given(values(PLAIN))
def test_the_order_of_members_does_not_matter(value: Any) -> None:
    several = {"a": value, "b": 1, "\U0001f600": 2, "\uffee": 3}
    assert canonical_digest(several) == canonical_digest(dict(reversed(several.items())))


@pytest.mark.parametrize("value", [2**53 + 1, 2**70, "\ud800", [1e308 * 10]], ids=ascii)
def test_what_has_no_canonical_form_has_a_digest_of_its_own(value: Any) -> None:
    assert canonical_digest({"a": value}) == canonical_digest({"a": value})
    assert canonical_digest({"a": value}) != canonical_digest({"a": 0})


@pytest.mark.parametrize("item", [1, 1.5, "\U0001f600", '\\u"', {"\U0001f600": 1.0}], ids=ascii)
def test_long_values_are_not_serialized_by_the_slow_library(item: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(rfc8785, "dumps")
    assert canonical_digest({"a": [item] * MAX_EXACT_BYTES}) == canonical_digest({"a": [item] * MAX_EXACT_BYTES})
