"""Documents of authorization servers as the SDK reads them: what is repaired, and what is left as it is."""

from typing import Any

import httpx2
import pytest

from hubbubd.bounds import LARGEST_WHOLE
from hubbubd.upstream.http.oauth.documents import (
    FlowKnowledge,
    OAuthRequestKind,
    complete_challenge,
    effective_status,
    is_same_issuer,
    parse_document,
    repair_document,
)

NOTHING = FlowKnowledge()


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (3599.9, 3599),
        ("3600", 3600),
        ("3599.5", 3599),
        (3600, 3600),
        ("soon", None),
        (True, None),
        ([], None),
        (1e300, LARGEST_WHOLE),
        (10**30, LARGEST_WHOLE),
        (-1, 0),
    ],
)
def test_seconds_are_whole_or_absent(sent: Any, read: int | None) -> None:
    repaired = repair_document({"access_token": "t", "expires_in": sent}, OAuthRequestKind.TOKEN, NOTHING)
    assert repaired.get("expires_in") == read


@pytest.mark.parametrize("kind", list(OAuthRequestKind))
def test_a_member_that_is_null_or_empty_is_absent(kind: OAuthRequestKind) -> None:
    assert repair_document({"a": None, "b": "", "c": 0, "d": []}, kind, NOTHING) == {"c": 0, "d": []}


@pytest.mark.parametrize("document", [None, [], "text", 7])
def test_what_is_no_object_is_left_as_it_is(document: Any) -> None:
    for kind in OAuthRequestKind:
        assert repair_document(document, kind, NOTHING) == document
        assert effective_status(document, kind, 200) == 200


@pytest.mark.parametrize("content", [b"", b"<html>", b"a=b", b"\xff\xfe", b"&".join([b"error=e"] * 1000)])
def test_a_form_that_is_no_reply_of_a_token_endpoint_is_no_document(content: bytes) -> None:
    with pytest.raises(ValueError):
        parse_document(content, OAuthRequestKind.TOKEN)


def test_only_token_replies_may_be_forms() -> None:
    assert parse_document(b"access_token=t&scope=a+b", OAuthRequestKind.TOKEN) == {"access_token": "t", "scope": "a b"}
    with pytest.raises(ValueError):
        parse_document(b"access_token=t", OAuthRequestKind.REGISTRATION)


def test_a_list_of_scopes_is_joined() -> None:
    assert repair_document({"scope": ["a", "b"]}, OAuthRequestKind.TOKEN, NOTHING) == {"scope": "a b"}
    assert repair_document({"scope": "a,b"}, OAuthRequestKind.TOKEN, NOTHING) == {"scope": "a,b"}


def test_a_client_id_of_digits_is_a_text() -> None:
    assert repair_document({"client_id": 12}, OAuthRequestKind.REGISTRATION, NOTHING) == {"client_id": "12"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a.example", "https://a.example/", True),
        ("https://a.example/", "https://a.example", True),
        ("https://a.example:8443", "https://a.example:8443/", True),
        ("https://a.example/x", "https://a.example/x/", False),
        ("https://a.example", "https://a.example//", False),
        ("https://a.example", "https://b.example/", False),
        ("https://a.example?x", "https://a.example?x/", False),
        ("https://a.example#x", "https://a.example#x/", False),
        ("", "/", False),
    ],
)
def test_issuers_are_one_if_only_the_slash_of_an_empty_path_differs(one: str, other: str, same: bool) -> None:
    assert is_same_issuer(one, other) is same


def _refused(status: int, about: str) -> httpx2.Response:
    return httpx2.Response(status, headers=[("www-authenticate", about)], content=b"no")


def test_a_configured_scope_goes_before_that_of_a_refusal_but_not_of_one_for_want_of_scopes() -> None:
    about = 'Bearer error="invalid_token", scope="all"'
    asked = complete_challenge(_refused(401, about), "https://a.example/mcp", "read write")
    assert asked.headers["www-authenticate"].startswith('Bearer scope="read write"')
    step_up = complete_challenge(_refused(403, about), "https://a.example/mcp", "read write")
    assert step_up.headers["www-authenticate"] == about
    assert complete_challenge(httpx2.Response(401), "https://a.example/mcp", "read").headers["www-authenticate"] == (
        'Bearer scope="read"'
    )


@pytest.mark.parametrize("named", ['"/about"', "/about", '"about"', '"https://a.example/about"'])
def test_an_address_in_a_refusal_is_absolute(named: str) -> None:
    read = complete_challenge(_refused(401, f"Bearer resource_metadata={named}"), "https://a.example/mcp", None)
    assert read.headers["www-authenticate"].replace('"', "") == "Bearer resource_metadata=https://a.example/about"
    assert read.content == b"no"
