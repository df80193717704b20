"""URIs of resources as hosts see them."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd import payload
from hubbubd.core.hosts.host_uris import (
    add_prefix,
    find_owners,
    may_fit_template,
    may_have_uris,
    rewrite_uris,
    split_prefix,
)

servers = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
X, SHOWN = "file:///x", "hubbub://s/files/file:///x"
"""What is rewritten, and to what."""
OTHER = "file:///other"
"""The same where it only looks like one."""
LINK = {"type": "resource_link", "uri": X, "name": "x"}
EMBEDDED = {"type": "resource", "resource": {"uri": X, "text": OTHER}}
UI = {"_meta": {"ui": {"resourceUri": X, "other": OTHER}, "ui/resourceUri": X, "uri": OTHER}}
USED = {"type": "tool_result", "toolUseId": "1", "content": [LINK], "structuredContent": {"uri": OTHER}}


@given(servers, st.text() | st.sampled_from(["", "hubbub://s/a/x", "file:///a/{+path}", "a b", "//"]))
def test_the_prefix_comes_off_exactly(server: str, uri: str) -> None:
    assert split_prefix(add_prefix(server, uri)) == (server, uri)


@pytest.mark.parametrize("uri", ["", "file:///x", "hubbub://s/", "hubbub://s/a", "hubbub://s//x", "HUBBUB://s/a/x"])
def test_what_has_no_prefix_is_nobodys(uri: str) -> None:
    assert split_prefix(uri) is None


@pytest.mark.parametrize(
    "result",
    [
        {"resources": [{"uri": X, "name": OTHER}, {"uri": X, **UI}]},
        {"contents": [{"uri": X, "text": OTHER}, {"uri": X, "blob": "", **UI}]},
        {"resourceTemplates": [{"uriTemplate": X, "name": "n"}]},
        {"tools": [{"name": "t", "inputSchema": {"default": {"uri": OTHER}}, **UI}, {"name": "u"}]},
        {"content": [LINK, EMBEDDED, {"type": "text", "text": OTHER}], "structuredContent": {"uri": OTHER}},
        {"content": [], **UI},
        {"messages": [{"role": "user", "content": LINK}, {"role": "user", "content": EMBEDDED}]},
        {"messages": [{"role": "user", "content": [USED, LINK]}]},
        {"inputRequests": {"a": {"method": "sampling/createMessage", "params": {"messages": [{"content": USED}]}}}},
    ],
)
def test_every_uri_of_the_server_is_rewritten_and_nothing_else(result: dict[str, Any]) -> None:
    before = copy.deepcopy(result)
    done = rewrite_uris(result, "files")
    assert result == before
    assert done != result
    assert payload.dumps(done) == payload.dumps(result).replace(X.encode(), SHOWN.encode())
    assert may_have_uris(payload.dumps(result))


@pytest.mark.parametrize(
    "odd",
    [
        {"content": 5, "messages": {}, "resources": "x", "tools": [1, None], "_meta": [], "inputRequests": []},
        {"content": [{"type": "resource", "resource": 1}, {"type": ["resource_link"], "uri": X}], "contents": [{}]},
        {"resources": [{"uri": 5}], "inputRequests": {"a": 1, "b": {"params": 2}}, "_meta": {"ui": "x"}},
        {"uri": X, "resourceUri": X},
    ],
)
def test_what_has_another_shape_stays(odd: dict[str, Any]) -> None:
    assert rewrite_uris(odd, "files") == odd


def test_content_that_goes_on_forever_ends() -> None:
    block: dict[str, Any] = LINK
    for _ in range(200):
        block = {"type": "tool_result", "content": [block]}
    rewrite_uris({"content": [block]}, "files")


@pytest.mark.parametrize(
    ("document", "may"),
    [
        (b'{"content":[{"type":"text","text":"file:///x"}]}', False),
        (b'{"content":[{"type":"text","text":"{\\"uri\\":1}"}]}', False),
        (b'{"content":[{"type":"text","text":"\\u00e9\\u4e2d"}]}', False),
        (b'{"content":[{"\\u0075ri":"x"}]}', True),
        (b'{"_meta":{"ui/resourceU\\u0072i":"x"}}', True),
        (b'{"resourceTemplates":[{"uriTemplate":"x"}]}', True),
    ],
)
def test_the_bytes_say_when_nothing_needs_to_be_parsed(document: bytes, may: bool) -> None:
    assert may_have_uris(document) is may


@pytest.mark.parametrize(
    ("template", "uri", "whether"),
    [
        ("test://template/{id}/data", "test://template/1/data", True),
        ("test://template/{id}/data", "test://template/1/2/data", False),
        ("test://template/{id}/data", "test://template/1/", False),
        ("file:///{+path}", "file:///a/b/c", True),
        ("file:///{path}", "file:///a/b/c", False),
        ("db://{table}/{row}", "db://people/7", True),
        ("db://{table}-{row}", "db://a-b-c", True),
        ("db://search{?q,page}", "db://search?q=x&page=2", True),
        ("db://search{?q,page}", "db://search", True),
        ("db://all", "db://all", True),
        ("db://all", "db://al", False),
        ("{+a}x{+b}x{c}", "axbxc", True),
        ("ab{x}ba", "aba", False),
        ("{unclosed", "{unclosed", True),
    ],
)
def test_a_template_fits_what_it_can_become(template: str, uri: str, whether: bool) -> None:
    assert may_fit_template(uri, template) is whether


def test_a_template_made_to_take_forever_does_not() -> None:
    assert not may_fit_template("a" * 100_000, "{+x}a" * 1000 + "b{y}")
    assert may_fit_template("a" * 100_000, "{+x}a" * 1000 + "{y}")


def test_an_original_uri_belongs_to_the_servers_that_list_it_or_else_have_a_template_for_it() -> None:
    uris = {"b": {"x://1"}, "a": {"x://1", "x://2"}}
    templates = {"c": ["x://{n}"], "d": ["y://{n}"]}
    assert find_owners("x://1", uris, templates) == ("a", "b")
    assert find_owners("x://2", uris, templates) == ("a",)
    assert find_owners("x://3", uris, templates) == ("c",)
    assert find_owners("z://1", uris, templates) == ()
