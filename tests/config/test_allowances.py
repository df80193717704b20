"""What somebody may set for a server over the API is less than what the operator may."""

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from hubbub_shared.spec_fields import SPEC_PATHS
from hubbubd.config import Confinement, HubSettings, ServerConfig
from hubbubd.config.policy.hosts import HostRules
from hubbubd.config.servers.options import LONGEST_S, SHORTEST_PAUSE_S
from hubbubd.errors import HubError, InvalidArgument, PermissionDenied

from ..raising import raising

HTTP = {"name": "one", "url": "https://mcp.example.com/mcp"}


def confined(**settings: Any) -> Confinement:
    return Confinement.from_settings(HubSettings.model_validate({"data_dir": "unused", **settings}), {})


def refused(config: dict[str, Any], **settings: Any) -> list[str]:
    """The fields that are refused; none where the server may be added."""
    try:
        confined(**settings).check(ServerConfig.model_validate(config), {})
    except InvalidArgument as exc:
        return [field for field, _ in exc.violations]
    return []


def test_what_is_for_files_only_is_not_in_the_api() -> None:
    assert set(ServerConfig.model_fields) - set(SPEC_PATHS) == {"oauth", "ca", "cookies"}
    assert refused(HTTP | {"ca": "/etc/ca.pem", "oauth": {}}) == ["oauth", "ca"]


def test_a_server_with_defaults_is_allowed_however_small_the_hubs_own_bounds_are() -> None:
    small = {"max_message_bytes": 64 * 1024, "call_history_count": 1, "calls_per_principal": 1}
    assert refused(HTTP, **small) == []


OWN = HubSettings.model_validate({"data_dir": "unused"})
BOUNDS = {
    "max_message_bytes": OWN.max_message_bytes,
    "max_bytes_per_s": 16 * 1024 * 1024,
    "max_open_request_bytes": 64 * 1024 * 1024,
    "max_messages_per_s": 1000,
    "max_queued": OWN.calls_per_principal,
    "call_history_count": OWN.call_history_count,
    "call_history_age_s": OWN.call_history_age_s,
    "request_history_count": OWN.request_history_count,
    "request_history_age_s": OWN.request_history_age_s,
    "task_history_count": OWN.task_history_count,
    "task_history_age_s": OWN.task_history_age_s,
    "connect_timeout_s": LONGEST_S,
    "call_timeout_s": LONGEST_S,
    "call_max_s": LONGEST_S,
    "ping_timeout_s": LONGEST_S,
    "ping_interval_s": LONGEST_S,
    "answer_timeout_s": LONGEST_S,
    "receiver_task_ttl_s": LONGEST_S,
    "stable_after_s": LONGEST_S,
    "backoff_max_s": LONGEST_S,
}


@pytest.mark.parametrize("option", BOUNDS)
def test_bounds_are_at_most_the_hubs_own(option: str) -> None:
    most = int(BOUNDS[option])
    assert refused(HTTP | {option: most}) == []
    assert refused(HTTP | {option: most + 1}) == [f"{option}"]


@pytest.mark.parametrize(
    ("option", "value"),
    [("backoff_s", (1, SHORTEST_PAUSE_S / 2)), ("backoff_max_s", SHORTEST_PAUSE_S / 2), ("ping_interval_s", 0.5)],
)
def test_attempts_and_pings_have_a_shortest_pause(option: str, value: Any) -> None:
    assert refused(HTTP | {option: value}) == [f"{option}"]
    assert refused(HTTP | {"backoff_s": (SHORTEST_PAUSE_S,), "backoff_max_s": SHORTEST_PAUSE_S}) == []
    assert refused(HTTP | {"ping_interval_s": 0}) == []


@pytest.mark.parametrize(
    "header",
    [
        *("Host", "hOST", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "TE", "Trailer", "Expect"),
        *("Proxy-Authorization", "proxy-connection", "Keep-Alive", ":authority", ":path", "Accept", "Content-Type"),
        *("Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Last-Event-ID"),
        *("Host ", " host", "x y", "x\r\nHost", "", "h\u00f6st", "x:"),
    ],
)
def test_headers_that_say_where_a_request_goes_or_how_it_is_sent_are_refused_by_field(header: str) -> None:
    assert refused(HTTP | {"headers": {"X-Key": "1", header: "x"}}) == [f"headers.{header}"]


@pytest.mark.parametrize(
    "header", ["X-Forwarded-Host", "Authorization", "Cookie", "X-Api-Key", "User-Agent", "Forwarded"]
)
def test_other_headers_pass_with_a_value_of_one_line(header: str) -> None:
    assert refused(HTTP | {"headers": {header: "x"}}) == []
    for end in ("\r\n", "\r", "\n", "\0"):
        assert refused(HTTP | {"headers": {header: f"x{end}Host: y"}}) == [f"headers.{header}"]


def test_what_a_reference_turns_into_is_looked_at_as_well() -> None:
    config = ServerConfig.model_validate(HTTP | {"headers": {"X-Key": "${KEY}"}})
    with pytest.raises(InvalidArgument) as caught:
        confined(allow_variables=("KEY",)).check(config, {"KEY": "x\r\nHost: y"})
    assert [field for field, _ in caught.value.violations] == ["headers.X-Key"]


ODD = (
    "https://user:secret-pass@host/$${x}",
    "https://mcp.example.com\\@evil/$${",
    "https://mcp.example.com:$${port}/",
    "https://[$${x}]/",
    "https://mcp.example.com/$${\0",
    "https://user:pass@host/${UNSET}",
)


@pytest.mark.parametrize("url", ODD)
def test_a_url_is_looked_at_after_its_references_are_replaced(url: str) -> None:
    with pytest.raises((ValidationError, InvalidArgument)):
        confined().check(ServerConfig.model_validate({"name": "one", "url": url}), {})


def test_a_plain_dollar_brace_in_a_path_is_fine() -> None:
    assert refused(HTTP | {"url": "https://mcp.example.com/$${x}"}) == []


SYNTAX = (
    "http://",
    "https://",
    "$${",
    "${",
    "}",
    "${A}",
    "${A:-b}",
    "@",
    ":",
    "/",
    "?",
    "#",
    "[",
    "]",
    "\\",
    "\0",
    "%",
)
WORDS = ("::1", "mcp.example.com", "x", "*", "\u202e", "\u3002", "xn--", "0x7f", "65536", " ", "\n", "..", "\u00df")
PIECES = st.sampled_from((*SYNTAX, *WORDS))


@given(st.lists(PIECES | st.text(max_size=3), max_size=8).map("".join), st.sampled_from([{}, {"A": "b"}, {"A": "@["}]))
@example("https://[${A}]/?x", {})
@example("https://[v1.x]/", {})
@example("https://a:99999999/", {})
def test_whatever_a_url_is_it_is_taken_or_refused_and_can_be_kept(rest: str, environ: dict[str, str]) -> None:
    for url in (rest, f"https://{rest}", f"https://mcp.example.com{rest}"):
        try:
            config = ServerConfig.model_validate({"name": "one", "url": url})
        except ValidationError:
            continue
        try:
            confined(allow_variables=("A",)).check(config, environ)
        except HubError:
            continue
        config.model_dump_json()
        assert config.fingerprint
        assert config.list_known_secrets() is not None


@pytest.mark.parametrize("url", ["http://*.com/", "https://*/", "https://%2a.com/"])
def test_a_pattern_is_no_host_and_allows_none_that_is_not_public(url: str) -> None:
    with pytest.raises((ValidationError, HubError)):
        confined(allow_hosts=("*.com", "*")).check(ServerConfig.model_validate({"name": "one", "url": url}), {})


@pytest.mark.parametrize("host", ["*.corp.example", "a.corp.example", "*.CORP.example."])
def test_a_pattern_and_what_is_written_like_it_are_refused_where_their_address_is_not_public(host: str) -> None:
    with raising(PermissionDenied, "HOST_NOT_ALLOWED"):
        HostRules(["*.corp.example"], []).check(host, [ip_address("10.0.0.5")])
