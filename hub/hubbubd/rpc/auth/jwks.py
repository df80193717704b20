"""Public keys of an identity provider (JWKS): a cache with single-flight, rate-limited fetches.

JWK sets: RFC 7517, section 5. Discovery: https://openid.net/specs/openid-connect-discovery-1_0.html#ProviderConfig.
While the provider is unreachable the last keys stay in use.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import anyio
import httpx2
import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from hubbubd import payload
from hubbubd.config.sections.network import check_url
from hubbubd.cookies import NoCookies
from hubbubd.errors import Unavailable

log = structlog.get_logger(__name__)

MAX_BYTES = 256 * 1024
"""Bytes of a provider's keys: room for `MAX_KEYS` of them, with their certificates."""

MAX_KEYS = 100
"""The most keys of a provider that are stored; a provider has two while one replaces the other."""

FETCH_S = 5.0
"""Seconds the provider gets to return its keys."""

FRESH_S = 900.0
"""Seconds after which keys are fetched again, so that a withdrawn key stops working."""

PAUSE_S = 30.0
"""The shortest interval between fetches in seconds, whatever tokens come (rate limit)."""

ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""Allowed algorithms by key type: only asymmetric ones, never `none` or HMAC."""


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, with the algorithms it may be used for."""

    algorithms: tuple[str, ...]
    key: Any


class JwksCache:
    """The keys of an issuer, by id. An unknown id causes a fetch, at most one per `pause_s` seconds."""

    def __init__(self, issuer: str, jwks_url: str | None, *, pause_s: float = PAUSE_S) -> None:
        self._issuer = issuer
        self._jwks_url = jwks_url  # None: as the issuer's discovery document says
        self._pause_s = pause_s
        self._keys: dict[str | None, Key] | None = None  # by id; None until the first successful fetch
        # Loop time of the last successful fetch, and of the last attempt.
        self._fetched_at = self._attempted_at = -float("inf")
        self._fetch_lock = anyio.Lock()

    async def find(self, kid: str | None) -> Key | None:
        """Return the key with the id `kid`; for None the only key. Returns None if there is no such key.

        Fetches the keys again if they are older than FRESH_S or lack `kid`. Raises Unavailable until keys were fetched
        once.
        """
        # While another caller fetches, an old key is accepted, so that this caller need not wait.
        if not self._is_fresh(kid) and not (self._fetch_lock.locked() and self._find_cached(kid)):
            async with self._fetch_lock:
                now = anyio.current_time()
                if not self._is_fresh(kid) and now - self._attempted_at >= self._pause_s:
                    self._attempted_at = now
                    await self._fetch()
        if self._keys is None:
            raise Unavailable(
                "the identity provider's keys cannot be fetched now, so none of its tokens can be verified",
                reason="ISSUER_UNREACHABLE",
                retry_after_s=self._pause_s,
            )
        return self._find_cached(kid)

    def _is_fresh(self, kid: str | None) -> bool:
        """Return whether the key with the id `kid` is stored, and was fetched less than FRESH_S ago."""
        return self._find_cached(kid) is not None and anyio.current_time() - self._fetched_at < FRESH_S

    def _find_cached(self, kid: str | None) -> Key | None:
        """Return the stored key with the id `kid`; for None the only key. Returns None if there is no such key."""
        keys = self._keys or {}
        return next(iter(keys.values())) if kid is None and len(keys) == 1 else keys.get(kid)

    async def _fetch(self) -> None:
        """Fetch the keys and store them. A failure is logged, and the old keys stay."""
        try:
            with anyio.fail_after(FETCH_S):
                async with httpx2.AsyncClient(
                    verify=_make_tls_context(), timeout=FETCH_S, cookies=NoCookies()
                ) as client:
                    url = self._jwks_url or await self._discover_jwks_url(client)
                    keys = _parse_keys((await _get_json(client, url)).get("keys"))
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError) as exc:
            log.warning("identity provider keys not fetched", issuer=self._issuer, error=str(exc) or repr(exc))
            return
        self._keys, self._fetched_at = keys, anyio.current_time()

    async def _discover_jwks_url(self, client: httpx2.AsyncClient) -> str:
        """Return the address of the keys from the provider's discovery document. Raises ValueError, HTTPError."""
        document = await _get_json(client, f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != self._issuer:
            raise ValueError(f"the discovery document is of another issuer: {document.get('issuer')!r}")
        return check_url(str(document.get("jwks_uri")))


@cache
def _make_tls_context() -> ssl.SSLContext:
    """Return the TLS context of all fetches."""
    # Cached: loading the system's certificates takes longer than the rest of a fetch, and blocks the event loop.
    return httpx2.create_ssl_context()


async def _get_json(client: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    """Fetch and return a JSON object of at most MAX_BYTES. Raises ValueError, HTTPError."""
    body = bytearray()
    async with client.stream("GET", url, headers={"accept": "application/json"}) as response:
        response.raise_for_status()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_BYTES:
                raise ValueError(f"{url} sends more than {MAX_BYTES} bytes")
    document: object = payload.loads(bytes(body))
    if not isinstance(document, dict):
        raise ValueError(f"{url} sends no JSON object")
    return cast("dict[str, Any]", document)


def _parse_keys(jwks: object) -> dict[str | None, Key]:
    """Return the usable keys among the first MAX_KEYS of a JWK set, by id. Raises ValueError if there are none.

    `jwks` is the member `keys` of the set. Keys of unknown kinds and for other uses than signatures are left out.
    """
    keys: dict[str | None, Key] = {}
    for jwk in cast("list[Any]", jwks)[:MAX_KEYS] if isinstance(jwks, list) else []:
        try:
            kid, stated_algorithm = jwk.get("kid"), jwk.get("alg")
            algorithms = [name for name in ALGORITHMS.get(jwk["kty"], ()) if stated_algorithm in (None, name)]
            if algorithms and jwk.get("use", "sig") == "sig" and isinstance(kid, str | None):
                keys[kid] = Key(tuple(algorithms), PyJWK(jwk).key)
        except (PyJWTError, KeyError, TypeError, AttributeError, ValueError):
            continue  # a key of an unknown kind must not hide the others
    if not keys:
        raise ValueError("it publishes no keys for signatures")
    return keys
