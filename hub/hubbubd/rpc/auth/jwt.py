"""OIDC tokens: JSON web tokens signed by the identity provider, with this hub as their audience.

RFC 7519 (JWT), RFC 8725 (best current practices: what not to trust).
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, cast

import jwt
from jwt.exceptions import ExpiredSignatureError, InvalidAudienceError, InvalidIssuerError, PyJWTError

from hubbubd import bounds
from hubbubd.config import HubSettings
from hubbubd.core.access import Principal
from hubbubd.errors import Unauthenticated
from hubbubd.rpc.auth.grants import Grants
from hubbubd.rpc.auth.jwks import JwksCache, Key

LEEWAY_S = 30
"""The tolerated difference to the provider's clock, in seconds."""

MAX_VERIFIED = 1000
"""Cache size of verified tokens, so that each is verified once (LRU)."""

Claims = dict[str, Any]


class Jwt:
    """Authenticates principals by their tokens from one issuer; implements `auth.Authenticator`."""

    def __init__(
        self, keys: JwksCache, grants: Grants, *, issuer: str, audience: str, name_claim: str, roles_claim: str | None
    ) -> None:
        self._keys = keys
        self._grants = grants
        self._issuer = issuer
        self._audience = audience
        self._name_claim = name_claim
        self._roles_claim = roles_claim
        self._verified: OrderedDict[bytes, tuple[str | None, Key, Claims]] = OrderedDict()  # by `_cache_key`

    @classmethod
    def from_settings(cls, settings: HubSettings, grants: Grants) -> "Jwt | None":
        """Return the authenticator that the settings ask for; None without an issuer."""
        if settings.oidc_issuer is None or settings.oidc_audience is None:
            return None
        return cls(
            JwksCache(settings.oidc_issuer, settings.oidc_jwks_url),
            grants,
            issuer=settings.oidc_issuer,
            audience=settings.oidc_audience,
            name_claim=settings.oidc_name_claim,
            roles_claim=settings.oidc_roles_claim,
        )

    async def principal(self, token: str) -> Principal | None:
        """Return a token's principal; None for a token that is no JWT.

        Raises Unauthenticated for an invalid token, PermissionDenied without a grant, and Unavailable while the
        issuer's keys cannot be fetched.
        """
        if token.count(".") != 2:
            return None
        claims = await self._find_verified(token) or await self._verify(token)
        name = claims.get(self._name_claim)
        if not isinstance(name, str) or not name:
            raise _token_refused_error(f"its claim {self._name_claim!r} is no name")
        return self._grants.principal_of_claims(
            name, _read_claim_values(claims, self._roles_claim), _read_expiry(claims)
        )

    async def _find_verified(self, token: str) -> Claims | None:
        """Return the claims of a token that was verified before; None for other tokens, or if its key has changed.

        Raises Unauthenticated for an expired token, and Unavailable.
        """
        digest = _cache_key(token)
        if digest not in self._verified:
            return None
        kid, key, claims = self._verified[digest]
        if await self._keys.find(kid) is not key:
            self._verified.pop(digest, None)
            return None
        if time.time() >= _read_expiry(claims):
            raise _token_expired_error()
        if digest in self._verified:  # else it was dropped while this waited for the key
            self._verified.move_to_end(digest)
        return claims

    async def _verify(self, token: str) -> Claims:
        """Verify a token, remember its claims, and return them. Raises Unauthenticated, and Unavailable."""
        try:
            header = jwt.get_unverified_header(token)
            algorithm, kid = header.get("alg"), header.get("kid")
            issuer_key = await self._keys.find(kid)
            if issuer_key is None:
                raise _token_refused_error("the issuer has no such key")
            # The token may only choose among the algorithms that the key is for (RFC 8725, section 3.1).
            if algorithm not in issuer_key.algorithms:
                raise _token_refused_error("its signature algorithm is not accepted")
            claims: Claims = jwt.decode(
                token,
                issuer_key.key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
            )
            _read_expiry(claims)
            # Only tokens with a usable `exp` are remembered: `_read_expiry` has refused others.
            self._verified[_cache_key(token)] = kid, issuer_key, claims
            if len(self._verified) > MAX_VERIFIED:
                self._verified.popitem(last=False)
            return claims
        except ExpiredSignatureError:
            raise _token_expired_error() from None
        except InvalidAudienceError:
            raise _token_refused_error(f"it is not meant for {self._audience}") from None
        except InvalidIssuerError:
            raise _token_refused_error(f"it is not of {self._issuer}") from None
        except (PyJWTError, ValueError, TypeError, OverflowError) as exc:
            raise _token_refused_error(str(exc)) from None


def _read_expiry(claims: Claims) -> float:
    """Return when a token expires, with leeway. Raises Unauthenticated without a valid `exp`."""
    exp: object = claims.get("exp")
    expires_at = bounds.clamp_moment(bounds.parse_real(exp) if isinstance(exp, str) else exp)
    if expires_at is None:
        raise _token_refused_error("its claim 'exp' is no time")
    return min(expires_at + LEEWAY_S, bounds.LATEST)


def _cache_key(token: str) -> bytes:
    """Return a token's key in the cache; the token itself is not stored."""
    return hashlib.sha256(token.encode()).digest()


def _token_expired_error() -> Unauthenticated:
    return Unauthenticated("the token has expired; get a new one", reason="TOKEN_EXPIRED")


def _token_refused_error(why: str) -> Unauthenticated:
    return Unauthenticated(f"this JSON web token is refused: {why}", reason="TOKEN_INVALID")


def _read_claim_values(claims: Mapping[str, Any], path: str | None) -> frozenset[str]:
    """Return a claim's values: the texts of a list, or the words of a text; empty for any other claim.

    A dotted `path` leads into objects (`realm_access.roles`); None stands for no claim.
    """
    if path is None:
        return frozenset()
    value: Any = claims
    for member in (path,) if path in claims else path.split("."):
        value = cast("Mapping[str, Any]", value).get(member) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return frozenset(value.split())
    values = cast("list[Any]", value) if isinstance(value, list) else []
    return frozenset(each for each in values if isinstance(each, str))
