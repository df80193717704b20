"""What `allow_hosts` and `deny_hosts` allow."""

from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from hubbubd.config.policy.hosts import HostRules, is_public, normalize_rule
from hubbubd.errors import PermissionDenied

INSIDE = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "168.63.129.16",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1",
    "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::1", "fc00::1",
    "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "2a00::5efe:7f00:1", "2001:0:7f00:1::", "4000::1",
]  # fmt: skip
OUTSIDE = ["1.1.1.1", "93.184.215.14", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]


def refused(hosts: HostRules, host: str, addresses: Sequence[str] = ()) -> bool:
    try:
        hosts.check_host(host)
        hosts.check(host, [ip_address(address) for address in addresses])
    except PermissionDenied as denied:
        return {"HOST_NOT_ALLOWED": True}[denied.reason]
    return False


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_that_is_not_of_the_internet_is_refused(address: str) -> None:
    hosts = HostRules(["public"], [])
    assert refused(hosts, address)
    assert refused(hosts, f"[{address}]")
    assert refused(hosts, "rebound.example.com", [address])
    assert refused(hosts, "rebound.example.com", ["1.1.1.1", address])
    assert refused(HostRules(["*", "*.example.com"], []), "rebound.example.com", [address])


@pytest.mark.parametrize("address", OUTSIDE)
def test_an_address_of_the_internet_is_allowed(address: str) -> None:
    assert not refused(HostRules(["public"], []), address)
    assert not refused(HostRules(["public"], []), "mcp.example.com", [address])
    assert refused(HostRules(["public"], ["0.0.0.0/0", "::/0"]), address)
    assert refused(HostRules([], []), address)


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0x7f000001", "1.2.3.4.5", "a.0x1", "127.0.0.1.."]
)
def test_an_address_in_an_unusual_spelling_is_refused(host: str) -> None:
    assert refused(HostRules(["public", "*"], []), host)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "localhost.", "a.localhost", "127.0.0.1", "[::1]"])
def test_this_machine_is_refused_unless_it_is_named(host: str) -> None:
    assert refused(HostRules(["public"], []), host)
    assert not refused(HostRules(["127.0.0.0/8", "::1"], []), host)


def test_a_name_is_allowed_wherever_it_is_but_a_pattern_only_on_the_internet() -> None:
    assert not refused(HostRules(["mcp.corp.example"], []), "MCP.corp.example.", ["10.1.2.3"])
    assert refused(HostRules(["*.corp.example"], []), "mcp.corp.example", ["10.1.2.3"])
    assert not refused(HostRules(["*.corp.example"], []), "mcp.corp.example", ["1.1.1.1"])
    assert not refused(HostRules(["*.corp.example", "10.0.0.0/8"], []), "mcp.corp.example", ["10.1.2.3"])
    assert refused(HostRules(["*.corp.example"], []), "corp.example.evil.example", ["1.1.1.1"])


def test_what_is_connected_to_has_no_wildcard_in_its_name() -> None:
    with pytest.raises(PermissionDenied):
        HostRules(["public"], []).check("*.example.com", [ip_address("1.1.1.1")])


def test_what_is_denied_is_denied_whatever_allows_it() -> None:
    hosts = HostRules(["public", "10.0.0.0/8", "mcp.example.com"], ["10.0.0.1", "*.evil.example", "mcp.example.com"])
    assert not refused(hosts, "10.0.0.2")
    assert refused(hosts, "10.0.0.1")
    assert refused(hosts, "::ffff:10.0.0.1")
    assert refused(hosts, "a.evil.example", ["1.1.1.1"])
    assert refused(hosts, "A.EVIL.example.", ["1.1.1.1"])
    assert refused(hosts, "mcp.example.com", ["1.1.1.1"])


def test_a_tunnel_to_an_allowed_network_needs_both_ends_allowed() -> None:
    assert refused(HostRules(["10.0.0.0/8"], []), "2002:a00:1::1")
    assert not refused(HostRules(["10.0.0.0/8"], []), "::ffff:10.0.0.1")


def test_all_of_the_internet_is_public_and_none_of_the_rest() -> None:
    assert [address for address in INSIDE[:20] if is_public(ip_address(address))] == []


@pytest.mark.parametrize(
    "rule", ["", "http://x", "x:80", "a b", "10.0.0.0/33", "1.2.3", "0x7f.1", "a..b", "-a", "a/8", "ü.de"]
)
def test_an_entry_that_means_nothing_is_an_error(rule: str) -> None:
    with pytest.raises(ValueError, match="is neither"):
        normalize_rule(rule)
