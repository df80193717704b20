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
"""What begins the names of hosts that people have let in."""


class Grants:
    """The grants of the configuration, which may change while the hub runs."""

    def __init__(self, settings: Iterable[GrantSettings]) -> None:
        self._settings = tuple(settings)
        self._cached_principal = lru_cache(maxsize=256)(self._principal_of_certificate)
        self._cached_grants = lru_cache(maxsize=1024)(self._find_grants)

    def set(self, settings: Iterable[GrantSettings]) -> None:
        """Replace the grants; `stands` tells who has fewer than before."""
        self._settings = tuple(settings)
        self._cached_principal.cache_clear()
        self._cached_grants.cache_clear()

    def stands(self, principal: Principal) -> bool:
        """Return whether a principal still has all grants it was admitted with; True for those that need none."""
        source, _, name = principal.name.partition(":")
        if source == LOGIN:
            return self._stands_with_person(principal, name)
        if source not in (CERT, OIDC):
            return True
        now = self._cached_grants(source, name, principal.groups)
        return principal.grants is now or set(principal.grants) <= set(now)

    def _stands_with_person(self, principal: Principal, name: str) -> bool:
        """Return whether the person who has let a host in still may call all that the host may."""
        person = name.rpartition("/")[0]  # the name of a token has no slash
        source, _, called = person.partition(":")
        if source != CERT:
            return True
        granted = self._cached_grants(source, called, _NO_GROUPS)
        now = Principal(name=person, grants=granted, credential="").servers(Permission.CALL)
        return all(_covers(now, pattern) for pattern in principal.servers(Permission.CALL))

    def of_certificate(self, certificate: bytes) -> Principal:
        """Return the principal of a client certificate (PEM or DER) that TLS has verified.

        Raises Unauthenticated for one without a name, PermissionDenied for a name without a grant.
        """
        return self._cached_principal(certificate)

    def of_claims(self, name: str, roles: Collection[str], expires_at: float) -> Principal:
        """Return the principal that the identity provider names. Raises as `of_certificate`."""
        return self._principal(OIDC, name, "jwt", expires_at, frozenset(roles))

    def _principal_of_certificate(self, certificate: bytes) -> Principal:
        from hubbubd.rpc.auth.certificates import name_of, parsed  # lazy: most hubs see none, and need no cryptography

        found = parsed(certificate)
        name = name_of(found)
        until = found.not_valid_after_utc.timestamp()
        return self._principal(CERT, name, f"certificate {found.serial_number:x}", until, _NO_GROUPS)

    def _principal(
        self, source: str, name: str, credential: str, expires_at: float, groups: frozenset[str]
    ) -> Principal:
        name, called = f"{source}:{name}", name
        if not name.isprintable() or len(name) > MAX_NAME:
            raise Unauthenticated(f"a name has at most {MAX_NAME} printable characters", reason="NAME_INVALID")
        grants = self._cached_grants(source, called, groups)
        if not grants:
            raise PermissionDenied(
                f"{name} is known to the hub, but none of its grants is for them",
                reason="NOTHING_GRANTED",
                metadata={"principal": name},
            )
        return Principal(name=name, grants=grants, credential=credential, expires_at=expires_at, groups=groups)

    def _find_grants(self, source: str, name: str, groups: frozenset[str]) -> tuple[Grant, ...]:
        def is_granted(of: str, wanted: str) -> bool:
            return wanted in groups if of == OIDC_ROLE else of == source and matches((wanted,), name)

        return tuple(
            Grant(Role(role), each.servers)
            for each in self._settings
            if is_granted(*each.who.split(":", 1))
            for role in each.roles
        )


def _covers(patterns: Collection[str], pattern: str) -> bool:
    """Return whether patterns have all servers of another one, as far as that can be told."""
    is_name = not set("*?[") & set(pattern)
    return ANY in patterns or pattern in patterns or (is_name and matches(patterns, pattern))
