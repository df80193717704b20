"""URIs of resources as hosts see them."""

import copy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubbubd import payload
from hubbubd.core.hosts.host_uris import (
    add_prefix,
    find_owners,
    find_page_uri,
    may_fit_template,
    may_have_uris,
    respell_for_host,
    rewrite_uris,
    split_prefix,
)

servers = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
schemes = st.sampled_from(
    ["ui://", "UI://", "uI://", "skill://", "Skill://", "hubbub://s/", "file:///", "ui:", "\u017fkill://"]
)
rests = st.lists(
    st.text(max_size=4)
    | st.sampled_from(["ui://", "skill://", "hubbub://s/", "a+", "+", "%2B", "%", "/", "..", "{+x}"]),
    max_size=5,
).map("".join)
uris = st.builds("{}{}".format, schemes, rests) | st.text()
X, SHOWN = "file:///x", "hubbub://s/files/file:///x"
"""What is rewritten, and to what."""
OTHER = "file:///other"
"""The same where it only looks like one."""
LINK = {"type": "resource_link", "uri": X, "name": "x"}
EMBEDDED = {"type": "resource", "resource": {"uri": X, "text": OTHER}}
UI = {
    "_meta": {"ui": {"resourceUri": X, "other": OTHER}, "ui/resourceUri": X, "uri": OTHER, "openai/outputTemplate": X}
}
USED = {"type": "tool_result", "toolUseId": "1", "content": [LINK], "structuredContent": {"uri": OTHER}}


@given(servers, uris)
@example("a", "")
@example("weather", "ui://weather+x/y")
@example("a", "skill://../SKILL.md")
def test_a_shown_uri_leads_to_exactly_what_the_server_said(server: str, uri: str) -> None:
    assert split_prefix(add_prefix(server, uri)) == (server, uri)
    assert split_prefix(f"hubbub://s/{server}/{uri}") == (server, uri)


@given(st.lists(servers, min_size=2, max_size=4), uris)
def test_a_uri_through_several_hubs_comes_back_through_each(path: list[str], uri: str) -> None:
    shown = uri
    for server in path:
        shown = add_prefix(server, shown)
    for server in reversed(path):
        found = split_prefix(shown)
        assert found[0] == server
        shown = found[1]
    assert shown == uri


@given(servers, servers, uris, uris)
def test_two_resources_never_have_one_shown_uri(server: str, other: str, uri: str, second: str) -> None:
    assert (add_prefix(server, uri) == add_prefix(other, second)) == ((server, uri) == (other, second))


@pytest.mark.parametrize(
    ("own", "shown"),
    [
        ("ui://weather/page.html", "ui://files+weather/page.html"),
        ("UI://page", "UI://files+page"),
        ("ui://{city}/page", "ui://files+{city}/page"),
        ("skill://git/commit/SKILL.md", "skill://files/git/commit/SKILL.md"),
        ("ui:page", "hubbub://s/files/ui:page"),
        ("file:///x", "hubbub://s/files/file:///x"),
    ],
)
def test_pages_and_skills_keep_their_scheme(own: str, shown: str) -> None:
    assert add_prefix("files", own) == shown


@pytest.mark.parametrize(
    "uri",
    [
        *("", "file:///x", "hubbub://s/", "hubbub://s/a", "hubbub://s//x", "HUBBUB://s/a/x"),
        *("ui://a", "ui://a/b+c", "ui://+x", "ui:a+b", "skill://a", "skill:///a/b"),
    ],
)
def test_what_has_no_prefix_is_nobodys(uri: str) -> None:
    assert split_prefix(uri) is None


@pytest.mark.parametrize(
    ("asked", "uri", "said"),
    [
        ("ui://a+x", "ui://x", "ui://a+x"),
        ("hubbub://s/a/ui://x", "ui://x", "hubbub://s/a/ui://x"),
        ("ui://a+x", "ui://x/part", "ui://a+x/part"),
        ("ui://x", "ui://x/part", "ui://x/part"),
    ],
)
def test_a_host_hears_of_a_resource_by_the_uri_that_it_asked_for(asked: str, uri: str, said: str) -> None:
    assert respell_for_host("a", "ui://x", asked, uri) == said


@pytest.mark.parametrize(
    ("meta", "page"),
    [
        ({"ui": {"resourceUri": "ui://a"}, "ui/resourceUri": "ui://b"}, "ui://a"),
        ({"ui": {"visibility": ["app"]}, "ui/resourceUri": "ui://b"}, "ui://b"),
        ({"openai/outputTemplate": "ui://c"}, "ui://c"),
        ({"ui": {"resourceUri": 5}, "ui/resourceUri": ""}, None),
        ({"ui": "ui://a"}, None),
        (None, None),
    ],
)
def test_a_tool_names_its_page_in_several_ways(meta: object, page: str | None) -> None:
    assert find_page_uri(meta) == page


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


ODD: list[dict[str, Any]] = [
    {"content": 5, "messages": {}, "resources": "x", "tools": [1, None], "_meta": [], "inputRequests": []},
    {"content": [{"type": "resource", "resource": 1}, {"type": ["resource_link"], "uri": X}], "contents": [{}]},
    {"resources": [{"uri": 5}], "inputRequests": {"a": 1, "b": {"params": 2}}, "_meta": {"ui": "x"}},
    {"uri": X, "resourceUri": X},
]


@pytest.mark.parametrize("odd", ODD)
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
        (b'{"_meta":{"openai/outputTemplate":"x"}}', True),
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
