"""Principals from client certificates and OIDC tokens, with their roles from `[[hub.grants]]`."""

from collections.abc import Collection, Iterable
from functools import lru_cache

from hubbubd.config.sections.network import CERT, OIDC, OIDC_ROLE, GrantSettings
from hubbubd.core.access import ANY, Grant, Permission, Principal, Role, matches
from hubbubd.errors import PermissionDenied, Unauthenticated

MAX_NAME = 256
"""Characters of a name that an authority gives: X.509 allows 64 to a common name, OpenID Connect 255 to `sub`."""

_NO_GROUPS: frozenset[str] = frozenset()

LOGIN = "login"
"""The source in the names of hosts that people have let in: `login:PERSON/...`."""


class Grants:
    """Makes principals with the grants of the configuration, which may change while the hub runs."""

    def __init__(self, settings: Iterable[GrantSettings]) -> None:
        self._settings = tuple(settings)
        self._cached_principal = lru_cache(maxsize=256)(self._make_certificate_principal)
        self._cached_grants = lru_cache(maxsize=1024)(self._find_grants)

    def set(self, settings: Iterable[GrantSettings]) -> None:
        """Replace the grants (roles for servers); `still_has` is then False for principals that had more before."""
        self._settings = tuple(settings)
        self._cached_principal.cache_clear()
        self._cached_grants.cache_clear()

    def still_has(self, principal: Principal) -> bool:
        """Return whether a principal still has all grants it was admitted with; True for grants of another source."""
        source, _, name = principal.name.partition(":")
        if source == LOGIN:
            return self._person_still_has(principal, name)
        if source not in (CERT, OIDC):
            return True
        current_grants = self._cached_grants(source, name, principal.groups)
        # The cache returns the same tuple as long as the settings are the same.
        return principal.grants is current_grants or set(principal.grants) <= set(current_grants)

    def _person_still_has(self, principal: Principal, name: str) -> bool:
        """Return whether the person who let a host in may still call its servers.

        True for a person who is not known by a certificate.
        """
        person = name.rpartition("/")[0]  # the name of a token has no slash
        source, _, certificate_name = person.partition(":")
        if source != CERT:
            return True
        grants = self._cached_grants(source, certificate_name, _NO_GROUPS)
        callable_now = Principal(name=person, grants=grants, credential="").servers(Permission.CALL)
        return all(_covers(callable_now, pattern) for pattern in principal.servers(Permission.CALL))

    def principal_of_certificate(self, certificate: bytes) -> Principal:
        """Return the principal of a client certificate (PEM or DER) that TLS has verified.

        Raises Unauthenticated for a certificate without a usable name, PermissionDenied for a name without a grant.
        """
        return self._cached_principal(certificate)

    def principal_of_claims(self, name: str, roles: Collection[str], expires_at: float) -> Principal:
        """Return the principal that the identity provider names.

        Raises Unauthenticated for an unusable name, PermissionDenied for a name without a grant.
        """
        return self._make_principal(OIDC, name, "jwt", expires_at, frozenset(roles))

    def _make_certificate_principal(self, certificate: bytes) -> Principal:
        """Return the principal of a certificate, uncached.

        Raises Unauthenticated for one without a usable name, PermissionDenied for a name without a grant.
        """
        from hubbubd.rpc.auth.certificates import (
            find_name,
            parse_certificate,
        )  # lazy: most hubs see none, and need no cryptography

        parsed = parse_certificate(certificate)
        name = find_name(parsed)
        expires_at = parsed.not_valid_after_utc.timestamp()
        return self._make_principal(CERT, name, f"certificate {parsed.serial_number:x}", expires_at, _NO_GROUPS)

    def _make_principal(
        self, source: str, name: str, credential: str, expires_at: float, groups: frozenset[str]
    ) -> Principal:
        """Return the principal with its grants; `name` is what the source (`cert`, `oidc`) calls it.

        Raises Unauthenticated for an unusable name, PermissionDenied for a name without a grant.
        """
        name, bare_name = f"{source}:{name}", name
        if not name.isprintable() or len(name) > MAX_NAME:
            raise Unauthenticated(f"a name has at most {MAX_NAME} printable characters", reason="NAME_INVALID")
        grants = self._cached_grants(source, bare_name, groups)
        if not grants:
            raise PermissionDenied(
                f"{name} is known to the hub, but none of its grants is for them",
                reason="NOTHING_GRANTED",
                metadata={"principal": name},
            )
        return Principal(name=name, grants=grants, credential=credential, expires_at=expires_at, groups=groups)

    def _find_grants(self, source: str, name: str, groups: frozenset[str]) -> tuple[Grant, ...]:
        """Return the grants of the configuration for a name of a source (`cert`, `oidc`) and its groups."""

        def is_granted(rule_source: str, who: str) -> bool:
            """Return whether a grant is for this principal; `who` is a role, or a name pattern of `rule_source`."""
            if rule_source == OIDC_ROLE:
                return who in groups
            return rule_source == source and matches((who,), name)

        return tuple(
            Grant(Role(role), each.servers)
            for each in self._settings
            if is_granted(*each.who.split(":", 1))
            for role in each.roles
        )


def _covers(patterns: Collection[str], pattern: str) -> bool:
    """Return whether patterns match all servers that another pattern matches; False if that is not certain."""
    is_name = not set("*?[") & set(pattern)
    return ANY in patterns or pattern in patterns or (is_name and matches(patterns, pattern))
