"""What a server may ask beyond the shape of its request."""

from typing import Any

import pytest

from hubbubd.core.inbox.questions import find_problem
from hubbubd.core.inbox.request_states import RequestKind

TEXT = {"type": "text", "text": "hi"}
FORM, URL, SAMPLING, ROOTS, _ = RequestKind


def use(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "search", "input": {}}


def result(name: str) -> dict[str, Any]:
    return {"type": "tool_result", "toolUseId": name, "content": [TEXT]}


def said(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


ASKED = said("user", TEXT)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a?b=c#d",
        "http://127.0.0.1:8080",
        "HTTPS://EXAMPLE.ORG",
        "http://[::1]:1/x",
        "https://xn--bcher-kva.example/",
        "https://b\u00fccher.example/",
    ],
)
def test_a_page_on_the_web_may_be_asked_for(url: str) -> None:
    assert find_problem(URL, {"mode": "url", "url": url}) is None


@pytest.mark.parametrize(
    "url",
    [
        *("javascript:alert(1)", "file:///etc/passwd", "data:text/html,hi", "ftp://example.org", "mailto:a@b.c"),
        *("", "example.org", "//example.org", "https://", "https:///path", "http://[::1", "https://:80"),
        *("https://a.example\\@b.example", "https://a.example\n.b.example", " https://a.example", "https://a b"),
        *("https://a.example/\u202egpj.exe", "https://a.example/\x00", None, 5, ["https://example.org"]),
    ],
)
def test_what_has_no_host_to_show_is_not_asked(url: Any) -> None:
    assert find_problem(URL, {"mode": "url", "url": url})


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [ASKED],
        [{"role": "user", "content": TEXT}],
        [ASKED, {"role": "assistant", "content": use("a")}, {"role": "user", "content": result("a")}],
        [ASKED, said("assistant", TEXT, use("a"), use("b")), said("user", result("b"), result("a"))],
        [ASKED, said("assistant", use("a")), said("user", result("a")), said("assistant", TEXT), ASKED],
        2 * [said("assistant", use("a")), said("user", result("a"))],
    ],
)
def test_tool_uses_with_all_their_results_are_in_order(messages: list[Any]) -> None:
    assert find_problem(SAMPLING, {"messages": messages}) is None


@pytest.mark.parametrize(
    ("messages", "where"),
    [
        ([ASKED, said("assistant", use("a"))], "messages"),
        ([said("assistant", use("a")), ASKED], "messages.1"),
        ([said("assistant", use("a")), said("assistant", TEXT), said("user", result("a"))], "messages.1"),
        ([said("assistant", use("a"), use("b")), said("user", result("a"))], "messages.1"),
        ([said("assistant", use("a")), said("user", result("a"), result("b"))], "messages.1"),
        ([said("assistant", use("a")), said("user", result("a"), result("a"))], "messages.1"),
        ([said("assistant", use("a")), said("user", result("b"))], "messages.1"),
        ([said("assistant", use("a")), said("user", result("a"), TEXT)], "messages.1"),
        ([said("assistant", use("a")), said("assistant", result("a"))], "messages.1"),
        ([ASKED, said("user", result("a"))], "messages.1"),
        ([said("assistant", use("a")), said("user", result("a")), said("user", result("a"))], "messages.2"),
    ],
)
def test_tool_uses_without_just_their_results_are_not_asked(messages: list[Any], where: str) -> None:
    found = find_problem(SAMPLING, {"messages": messages})
    assert found.partition(":")[0] == where


@pytest.mark.parametrize(
    "messages", [None, 5, {}, [None], [{"content": 5}], [{"role": 1, "content": [None, {"type": ["tool_use"]}]}]]
)
def test_messages_of_no_shape_at_all_break_nothing(messages: Any) -> None:
    assert find_problem(SAMPLING, {"messages": messages}) is None


@pytest.mark.parametrize("kind", [FORM, ROOTS])
def test_other_requests_have_no_more_rules(kind: RequestKind) -> None:
    assert find_problem(kind, {}) is None
