"""The rules of the log-in: who may ask, where browsers are sent, and how tokens follow one another."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core.access import matches
from hubbubd.core.hosts import endpoint_paths
from hubbubd.core.hosts.endpoint_paths import EndpointName
from hubbubd.core.logins import authorizations, clients, issued, statements
from hubbubd.core.logins.issued import GRACE_S, Digests, RefreshVerdict, TokenLogin
from hubbubd.core.logins.refusals import LoginRefusal

BASE = "http://127.0.0.1:7881"
KEY = bytes(32)


@pytest.mark.parametrize(
    "uri",
    [
        "https://claude.ai/api/mcp/auth_callback",
        "https://vscode.dev/redirect?a=b",
        "http://127.0.0.1:33418/",
        "http://127.0.0.1",
        "http://localhost:8080/oauth/callback",
        "http://[::1]:1/cb",
        "cursor://anysphere.cursor-retrieval/oauth/callback",
        "com.example.app:/callback",
    ],
)
def test_a_browser_may_be_sent_to_https_loopback_and_a_programs_own_scheme(uri: str) -> None:
    assert clients.check_redirect_uri(uri) == uri


@pytest.mark.parametrize(
    "uri",
    [
        None,
        "",
        7,
        "https://",
        "http://example.com/",
        "http://127.0.0.1.example.com/",
        "http://10.0.0.1/",
        "http://user@127.0.0.1/",
        "https://user:x@example.com/",
        "https://example.com/#fragment",
        "https://example.com/#",
        "https://example.com:99999/",
        "https://example.com/ space",
        "https://example.com/\nx",
        "https://exämple.com/",
        "https:\\example.com",
        "JavaScript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "web+evil:x",
        "irc://evil.example/x",
        "ms-settings:x",
        "search-ms:query=x",
        "https://good%2eevil.example/x",
        "//example.com/",
        "/relative",
        "example.com",
        f"https://example.com/{'x' * 500}",
    ],
)
def test_a_browser_is_sent_nowhere_else(uri: object) -> None:
    with pytest.raises(LoginRefusal, match="redirect URI") as refused:
        clients.check_redirect_uri(uri)
    assert refused.value.error == "invalid_redirect_uri"


@pytest.mark.parametrize(
    ("registered", "asked", "is_one"),
    [
        ("https://a.example/cb", "https://a.example/cb", True),
        ("https://a.example/cb", "https://a.example/cb/", False),
        ("https://a.example/cb", "https://a.example/cb?x=1", False),
        ("https://a.example/cb", "https://A.example/cb", False),
        ("https://a.example/cb", "https://a.example:444/cb", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:9/cb", True),
        ("http://127.0.0.1:5/cb", "http://127.0.0.1:9/cb", True),
        ("http://localhost:5/cb", "http://localhost/cb", True),
        ("http://localhost/cb", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:9/other", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:9/cb#x", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:9/cb?x", False),
        ("http://127.0.0.1/cb", "http://u@127.0.0.1:9/cb", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:x/cb", False),
        ("http://127.0.0.1/cb", "https://127.0.0.1:9/cb", False),
        ("app:/cb", "app:/cb", True),
        ("app:/cb", "app:/cb2", False),
    ],
)
def test_a_redirect_is_compared_exactly_but_for_the_port_of_loopback(registered: str, asked: str, is_one: bool) -> None:
    assert clients.matches_redirect((registered,), asked) is is_one


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Claude Code", "Claude Code"),
        (" a \n b\t", "a b"),
        ("\u202eevil\x00", "evil"),
        (None, ""),
        (7, ""),
        ("x" * 100, f"{'x' * 79}…"),
    ],
)
def test_a_programs_name_is_one_short_line(text: object, shown: str) -> None:
    assert clients.clean_client_name(text) == shown


@pytest.mark.parametrize(
    "url",
    [
        "https://app.example",
        "https://app.example/",
        "http://app.example/id.json",
        "https://u@app.example/id.json",
        "https://app.example/a/../id.json",
        "https://app.example/./id.json",
        "https://app.example/id.json#x",
        "https:///id.json",
        f"https://app.example/{'x' * 500}",
    ],
)
def test_an_address_at_which_no_document_can_be_is_refused(url: str) -> None:
    with pytest.raises(LoginRefusal):
        clients.check_document_address(url)


URL = "https://app.example/id.json"
DOCUMENT = {"client_id": URL, "client_name": "App", "redirect_uris": ["https://app.example/cb"]}


def test_a_document_describes_the_program_at_its_own_address() -> None:
    client = clients.parse_document(URL, DOCUMENT | {"token_endpoint_auth_method": "none", "logo_uri": 7})
    assert (client.id, client.name, client.document_host) == (URL, "App", "app.example")


@pytest.mark.parametrize(
    "changed",
    [
        {"client_id": "https://app.example/other.json"},
        {"client_id": None},
        {"client_secret": "x"},
        {"token_endpoint_auth_method": "client_secret_post"},
        {"token_endpoint_auth_method": "private_key_jwt"},
        {"redirect_uris": []},
        {"redirect_uris": None},
        {"redirect_uris": ["http://evil.example/"]},
        {"grant_types": ["implicit"]},
    ],
)
def test_a_document_that_describes_no_public_program_of_this_address_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(LoginRefusal):
        clients.parse_document(URL, DOCUMENT | changed)


@pytest.mark.parametrize("members", [None, [], "x", 7])
def test_what_is_no_object_is_no_program(members: object) -> None:
    for parse in (clients.parse_registration, lambda it: clients.parse_document(URL, it)):
        with pytest.raises(LoginRefusal):
            parse(members)


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (None, "/mcp"),
        (BASE, "/mcp"),
        (f"{BASE}/", "/mcp"),
        (f"{BASE}/mcp", "/mcp"),
        (f"{BASE}/mcp/", "/mcp"),
        (f"{BASE}/mcp/p/default", "/mcp"),
        ("http://localhost:7881/mcp/p/work", "/mcp/p/work"),
        ("http://[::1]:7881/mcp/s/one/mcp", "/mcp/s/one"),
        (f"{BASE}/mcp/p/a%20b", "/mcp/p/a b"),
    ],
)
def test_a_resource_is_an_endpoint_of_this_hub(resource: str | None, path: str) -> None:
    assert authorizations.parse_resource(resource, BASE).path == path


@pytest.mark.parametrize(
    "resource",
    [
        "https://127.0.0.1:7881/mcp",
        "http://127.0.0.1:7882/mcp",
        "http://127.0.0.1/mcp",
        "http://evil.example:7881/mcp",
        "http://u@127.0.0.1:7881/mcp",
        f"{BASE}/mcpx",
        f"{BASE}/other",
        f"{BASE}/mcp?x",
        f"{BASE}/mcp#x",
        "mcp",
        "http://[",
        f"{BASE}/mcp/p/{'x' * 3000}",
    ],
)
def test_another_resource_is_refused(resource: str) -> None:
    with pytest.raises(LoginRefusal) as refused:
        authorizations.parse_resource(resource, BASE)
    assert refused.value.error == "invalid_target"


def test_a_public_address_has_one_name() -> None:
    assert authorizations.parse_resource("https://hub.example/mcp", "https://hub.example").path == "/mcp"
    with pytest.raises(LoginRefusal):
        authorizations.parse_resource("http://localhost/mcp", "https://hub.example")


@given(st.from_regex(r"/mcp(/[ps]/[A-Za-z0-9._-]{1,20})?(/|/mcp)?", fullmatch=True))
def test_all_paths_of_an_endpoint_have_one_form(path: str) -> None:
    found = endpoint_paths.parse(path)
    assert endpoint_paths.parse(found.path) == found


def test_an_endpoint_of_a_server_is_none_of_a_profile() -> None:
    assert EndpointName("server", "default").path == "/mcp/s/default"


def test_the_answer_keeps_the_query_of_the_redirect_uri() -> None:
    assert (
        authorizations.make_answer_url("https://a.example/cb?x=1", BASE, "a b", code="hbx_1")
        == "https://a.example/cb?x=1&code=hbx_1&state=a%20b&iss=http%3A%2F%2F127.0.0.1%3A7881"
    )


@given(st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53) | st.none()), st.text(), st.text())
def test_a_statement_is_read_with_its_key_for_its_purpose_alone(
    members: dict[str, str | int | None], purpose: str, other: str
) -> None:
    text = statements.sign(KEY, purpose, members)
    assert statements.read(KEY, purpose, text) == members
    assert statements.read(bytes(31) + b"x", purpose, text) is None
    if other != purpose:
        assert statements.read(KEY, other, text) is None


@given(st.data())
def test_a_changed_statement_is_none(data: st.DataObject) -> None:
    text = statements.sign(KEY, "x", {"name": "value", "number": 7})
    at = data.draw(st.integers(0, len(text) - 1))
    changed = data.draw(st.characters())
    if changed != text[at]:
        assert statements.read(KEY, "x", text[:at] + changed + text[at + 1 :]) is None
    assert statements.read(KEY, "x", text[:at]) is None


@given(st.text())
def test_what_was_never_signed_is_none(text: str) -> None:
    assert statements.read(KEY, "x", text) is None


LOGIN = TokenLogin(
    client_id="c",
    client_name="C",
    redirect_host="h",
    granted_by="ada",
    granted_with="local",
    endpoint="/mcp",
    family="f",
    refresh="r1",
    access_until=3600.0,
    refreshed_at=0.0,
)


def refresh(login: TokenLogin, shown: str, number: int, now: float) -> tuple[RefreshVerdict, TokenLogin]:
    """What a refresh token is, and the log-in after it."""
    verdict = issued.judge_refresh(login, "f", shown, now)
    if verdict not in (RefreshVerdict.CURRENT, RefreshVerdict.REPEATED):
        return verdict, login
    new = Digests(access=f"a{number}", refresh=f"r{number}")
    return verdict, issued.with_new_tokens(login, "a", new, now, is_repeated=verdict is RefreshVerdict.REPEATED)


@pytest.mark.parametrize(
    ("shown", "after_s", "is_used", "verdict"),
    [
        ("r2", 0, False, RefreshVerdict.CURRENT),
        ("r2", 9e9, True, RefreshVerdict.CURRENT),
        ("r1", 0, False, RefreshVerdict.REPEATED),
        ("r1", GRACE_S - 1, False, RefreshVerdict.REPEATED),
        ("r1", GRACE_S, False, RefreshVerdict.STOLEN),
        ("r1", -1, False, RefreshVerdict.STOLEN),
        ("r1", 0, True, RefreshVerdict.STOLEN),
        ("r0", 0, False, RefreshVerdict.STOLEN),
    ],
)
def test_a_refresh_token_is_good_once_and_again_only_while_its_answer_is_unused(
    shown: str, after_s: float, is_used: bool, verdict: RefreshVerdict
) -> None:
    _, login = refresh(LOGIN, "r1", 2, 100.0)
    assert issued.judge_refresh(replace(login, is_used=is_used), "f", shown, 100.0 + after_s) is verdict
    assert issued.judge_refresh(login, "another", shown, 100.0) is RefreshVerdict.UNKNOWN


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 200)), max_size=12))
def test_who_shares_a_refresh_token_with_a_thief_notices(steps: list[tuple[bool, float]]) -> None:
    """Two have the same token. However they take turns, as soon as both have shown one, one of them was refused.

    Unless they repeat within the grace: then what the first got is void, so it is refused as soon as it is used.
    """
    login, now, number = LOGIN, 0.0, 1
    has = {True: "r1", False: "r1"}
    access: dict[bool, str] = {}
    for who, pause_s in steps:
        now, number = now + pause_s, number + 1
        verdict, login = refresh(login, has[who], number, now)
        if verdict is RefreshVerdict.STOLEN:
            return
        has[who], access[who] = f"r{number}", f"a{number}"
    both = set(access) == {True, False}
    # Of two who both have tokens, one has void ones: its next refresh is judged as stolen.
    verdicts = [issued.judge_refresh(replace(login, is_used=True), "f", has[who], now + 1) for who in (True, False)]
    assert not both or sorted(each.name for each in verdicts) == ["CURRENT", "STOLEN"]


@given(
    st.lists(st.sampled_from(["*", "a*", "b*", "ab", "ac", "?b", "[ab]c"]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["*", "a*", "*b", "ab", "zz"]), min_size=1, max_size=4),
)
def test_a_host_gets_what_is_shown_and_may_be_called_and_nothing_else(person: list[str], shown: list[str]) -> None:
    known = ["ab", "ac", "bb", "bc", "zz"]
    got = issued.intersect_patterns(person, shown, known)
    for name in known:
        assert matches(got, name) == (matches(person, name) and matches(shown, name))


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("Claude Code (hub)", "claude-code-hub"),
        ("", "host"),
        ("名前", "host"),
        ("a" * 99, "a" * 40),
        ("hub:x", "hub-x"),
    ],
)
def test_a_token_is_called_by_letters_digits_and_dashes(client: str, name: str) -> None:
    assert issued.make_token_name(client) == name


def test_names_are_counted_up() -> None:
    taken: list[str] = []
    for _ in range(4):
        taken.append(issued.choose_free_name("x", taken))
    assert taken == ["x", "x-2", "x-3", "x-4"]
    assert all(earlier != later for earlier, later in pairwise(taken))
