"""Which hosts a server added over the API may be at: the policy of the SSRF guard.

It decides by the address that is connected to, whatever name or spelling led there. `upstream/http/connections.py`
applies it after name resolution, against DNS rebinding.
"""

import re
from collections.abc import Iterable, Iterator
from copy import copy
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from hubbubd.errors import PermissionDenied

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

PUBLIC: Final = "public"
"""The rule that stands for all addresses of the public internet."""

# https://www.iana.org/assignments/ipv6-address-space: the only range assigned as global unicast.
_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = IPv6Network("::/96")
# Ranges for protocols, of which `is_global` lets addresses pass: 6to4 relays (RFC 7526), and assignments of the IETF
# (RFC 6890), where a cloud serves metadata (192.0.0.192).
_SIX_TO_FOUR_RELAY: Final = IPv4Network("192.88.99.0/24")
_IETF: Final = IPv4Network("192.0.0.0/24")

# Azure's virtual public address: serves metadata and secrets to virtual machines.
_AZURE: Final = IPv4Network("168.63.129.16/32")

# Loopback, and networks that are private by RFC 1918, RFC 4193 and RFC 6598. Link-local ones are not among them: there
# clouds serve credentials to whatever runs on a machine.
_PRIVATE: Final = tuple(
    map(
        ip_network,
        ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7"),
    )
)
# Where clouds serve credentials on addresses that are private otherwise: AWS, Google, Alibaba.
_CREDENTIALS: Final = tuple(map(ip_network, ("fd00:ec2::/32", "fd20:ce::/32", "100.100.100.200/32")))

_NAME: Final = re.compile(r"[a-z0-9_*?]([a-z0-9_*?-]*[a-z0-9_*?])?(\.[a-z0-9_*?]([a-z0-9_*?-]*[a-z0-9_*?])?)*")
_WILDCARD: Final = re.compile(r"[*?\[\]%]")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_ISATAP: Final = (0x00005EFE, 0x02005EFE)
"""The middle 32 bits of addresses that hold an IPv4 address (RFC 5214, section 6.1)."""


def normalize_rule(text: str) -> str:
    """Return an entry of `allow_hosts` or `deny_hosts` in lower case. Raises ValueError if it is invalid."""
    rule = text.lower().removesuffix(".")
    if _parse_network(rule) is None and not (_NAME.fullmatch(rule) and not _ends_in_number(rule)):
        raise ValueError(f"{text!r} is neither {PUBLIC!r}, an address, a network nor the name of a host")
    return rule


class HostRules:
    """The rules of `allow_hosts` and `deny_hosts`; a denial wins.

    A network allows its addresses, `public` those of the internet, a name its host at any address, and a name with
    wildcards only hosts at public addresses.
    """

    def __init__(self, allowed: Iterable[str], denied: Iterable[str]) -> None:
        """Take the entries of `allow_hosts` and `deny_hosts`, as `normalize_rule` returns them."""
        self._networks, self._names = _split_rules(allowed)
        self._denied_networks, self._denied_names = _split_rules(denied)
        self._literal_names = frozenset(name for name in self._names if name != PUBLIC and not _WILDCARD.search(name))
        self._trusted_host = ""

    def with_trusted_host(self, host: str) -> "HostRules":
        """Return these rules for a server that the owner trusts: its own host may also be at private addresses."""
        rules = copy(self)
        rules._trusted_host = _normalize_host(host)
        return rules

    def check_host(self, host: str) -> None:
        """Check a URL's host by its text; its addresses are checked by `check` once they are resolved.

        Raises PermissionDenied (HOST_NOT_ALLOWED).
        """
        name = _normalize_host(host)
        if (address := _parse_address(name)) is not None:
            self.check(host, [address])
        elif _WILDCARD.search(name):
            raise _make_host_error(host, "it has characters that no name of a host has")
        elif _ends_in_number(name):
            raise _make_host_error(host, "it is an address in an unusual spelling")
        elif name == "localhost" or name.endswith(".localhost"):  # loopback (RFC 6761, section 6.3)
            self.check(host, [IPv4Address("127.0.0.1")])
        elif self._denies_name(name) or not (
            self._networks or PUBLIC in self._names or self._allows_name(name) or name == self._trusted_host
        ):
            raise _make_host_error(host)

    def check(self, host: str, addresses: Iterable[Address]) -> None:
        """Check a host together with the addresses it resolved to. Raises PermissionDenied (HOST_NOT_ALLOWED)."""
        name = _normalize_host(host)
        if self._denies_name(name) or _WILDCARD.search(name):
            raise _make_host_error(host)
        for address in addresses:
            for actual in _list_effective_addresses(address):
                if self._denies_address(actual) or not self._allows_address(name, actual):
                    address_text = "" if str(address) == name else f", which is {address}"
                    raise _make_host_error(f"{host}{address_text}" if address_text else host)

    def _denies_name(self, name: str) -> bool:
        """Return whether `deny_hosts` has a name that matches."""
        return any(fnmatchcase(name, each) for each in self._denied_names)

    def _denies_address(self, address: Address) -> bool:
        """Return whether `deny_hosts` has the address, in a network or by `public`."""
        return _is_within(address, self._denied_networks) or (PUBLIC in self._denied_names and is_public(address))

    def _allows_name(self, name: str) -> bool:
        """Return whether `allow_hosts` has a name that matches."""
        return any(fnmatchcase(name, each) for each in self._names)

    def _allows_address(self, name: str, address: Address) -> bool:
        """Return whether `allow_hosts`, or the owner's trust, allows a host of this name at an address."""
        if _is_within(address, self._networks) or name in self._literal_names:
            return True
        if name == self._trusted_host and is_private(address):
            return True
        return (PUBLIC in self._names or self._allows_name(name)) and is_public(address)


def is_public(address: Address) -> bool:
    """Return whether an address is a public unicast address that is not known to serve a cloud's secrets.

    An IPv4 address that it contains (NAT64) does not count here: `_list_effective_addresses` yields that one as well,
    and both are checked.
    """
    if address.is_multicast or not address.is_global:
        return False
    if isinstance(address, IPv6Address):
        return address in _UNICAST or address in _NAT64
    return not _is_within(address, (_SIX_TO_FOUR_RELAY, _IETF, _AZURE))


def is_private(address: Address) -> bool:
    """Return whether an address is on loopback or in a private network, and not known to serve a cloud's secrets."""
    return _is_within(address, _PRIVATE) and not _is_within(address, _CREDENTIALS)


def is_safe_to_advise(address: Address) -> bool:
    """Return whether to advise allowing an address: it is public or private, and stands for no other address."""
    return [*_list_effective_addresses(address)] == [address] and (is_public(address) or is_private(address))


def _list_effective_addresses(address: Address) -> Iterator[Address]:
    """Yield the address, and the IPv4 addresses to which a translator or tunnel maps it: a rule must allow them all."""
    if isinstance(address, IPv4Address):
        yield address
    elif address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    else:
        yield address
        number = int(address)
        if address in _NAT64 or (address in _COMPATIBLE and number > 1):
            yield IPv4Address(number & 0xFFFFFFFF)
        if address.sixtofour is not None:
            yield address.sixtofour
        if address.teredo is not None:
            yield from address.teredo
        if number >> 32 & 0xFFFFFFFF in _ISATAP:
            yield IPv4Address(number & 0xFFFFFFFF)


def _split_rules(rules: Iterable[str]) -> tuple[tuple[Network, ...], frozenset[str]]:
    """Split rules into networks (or single addresses) and names."""
    rules = tuple(rules)
    networks = tuple(network for rule in rules if (network := _parse_network(rule)) is not None)
    return networks, frozenset(rule for rule in rules if _parse_network(rule) is None)


def _is_within(address: Address, networks: Iterable[Network]) -> bool:
    """Return whether an address is in one of the networks."""
    return any(address.version == network.version and address in network for network in networks)


def _parse_network(text: str) -> Network | None:
    """Return the network, or single address, that a text names; None if it names none."""
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def _parse_address(text: str) -> Address | None:
    """Return the address that a text names; None if it names none."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def _normalize_host(host: str) -> str:
    """Return a host in lower case, without brackets and dots at its end."""
    return host.lower().removeprefix("[").removesuffix("]").rstrip(".")


def _ends_in_number(name: str) -> bool:
    """Return whether a resolver may read a name as an address: its last part is a number.

    https://url.spec.whatwg.org/#ends-in-a-number-checker
    """
    return _NUMBER.fullmatch(name.rpartition(".")[2]) is not None


def _make_host_error(host: str, detail: str = "") -> PermissionDenied:
    """Return the error for a host that may not be reached."""
    return PermissionDenied(
        f"the host {host} may not be reached{f': {detail}' if detail else ''}; "
        "allow_hosts and deny_hosts of the hub's configuration say which may",
        reason="HOST_NOT_ALLOWED",
        metadata={"host": host},
    )
