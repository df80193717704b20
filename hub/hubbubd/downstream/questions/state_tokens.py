"""Tokens of calls that wait for answers: the `requestState` that a host gets and brings back (MCP 2026-07-28).

A host cannot read or make a token. A token names a call and a round, and opens only for the request that it was made
for: the same principal, profile, method, name and params, before it expires. It is no authorization: permissions are
checked as for any request. Whether a round is the call's latest is for the caller to check.

    state = base64url(version, nonce, AES-GCM(key, nonce, {call id, round, expiry}, request))

The request is the associated data of the seal. So a state of another request does not open, like a forged state, and
both are refused alike.
"""

import base64
import hashlib
import importlib
import math
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, ValidationError

from hubbubd import payload
from hubbubd.bounds import Count, Moment
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.store.vault.state_keys import ROTATE_S, StateKeyRing
from hubbubd.timing.clock import Clock

NOT_BOUND: Final = frozenset({"_meta", "inputResponses", "requestState"})
"""Params that differ from round to round."""

MAX_STATE: Final = 8192
"""Characters of a state that is looked at; the hub's own states are shorter."""

_SEALING: Final = "cryptography.hazmat.primitives.ciphers.aead"

_VERSION: Final = b"\x01"
_NONCE_BYTES: Final = 12  # NIST SP 800-38D, section 8.2


class StateToken(BaseModel):
    """The content of a state: the call, its round, the ids of the round's questions, and the expiry in epoch seconds.

    `sealed_at` is a time of the steady clock of the process `run`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    call_id: str
    round: Count
    expires_at: Moment
    asked: tuple[str, ...]
    sealed_at: float
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRequest:
    """The request that a state is for. `name` is the tool, prompt or resource as the host named it."""

    principal: str
    profile: str
    method: str
    name: str
    params: str
    """`digest` of the params."""

    def to_bytes(self) -> bytes:
        """Return the request as bytes; different requests have different bytes."""
        return _VERSION + payload.dumps([self.principal, self.profile, self.method, self.name, self.params])


class StateTokens:
    """Seals and opens the states of requests, with the keys of a ring."""

    def __init__(self, keys: StateKeyRing, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock

    def seal(self, call_id: str, round_: int, bound: BoundRequest, *, ttl_s: float, asked: Sequence[str] = ()) -> str:
        """Return the state of a call's round, for the request `bound`. It expires after `ttl_s` seconds, or 30 days.

        `asked` are the ids of the round's pending requests. `import_cipher` must have been awaited before.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # lazy: see `import_cipher`

        token = StateToken(
            call_id=call_id,
            round=round_,
            expires_at=self._clock.now() + min(ttl_s, ROTATE_S),
            asked=tuple(asked),
            sealed_at=self._clock.steady(),
            run=self._keys.run,
        )
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = AESGCM(self._keys.secrets[0]).encrypt(nonce, token.model_dump_json().encode(), bound.to_bytes())
        return base64.urlsafe_b64encode(_VERSION + nonce + sealed).decode()

    def open(self, state: object, bound: BoundRequest) -> StateToken:
        """Return the content of a state that a host has sent.

        Raises the same Refusal for a state that is forged, changed, expired, or of another request.
        """
        token = self._decrypt(state, bound)
        if token is None or token.expires_at <= self._clock.now():
            raise Refusal(INVALID_PARAMS, "requestState is not of this request, or has expired: send it without one")
        return token

    @staticmethod
    async def import_cipher() -> None:
        """Import the cipher in a thread: that takes about 100 ms, and the first second of the hub does not need it."""
        if _SEALING not in sys.modules:
            await to_thread.run_sync(importlib.import_module, _SEALING)

    def age_s(self, token: StateToken) -> float:
        """Return the seconds since a state was sealed, by the steady clock; infinity if another process sealed it."""
        return self._clock.steady() - token.sealed_at if token.run == self._keys.run else math.inf

    def _decrypt(self, state: object, bound: BoundRequest) -> StateToken | None:
        """Return the content of a state, expired or not; None if it was not sealed for the request `bound`."""
        from cryptography.exceptions import InvalidTag  # lazy: see `import_cipher`
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not isinstance(state, str) or len(state) > MAX_STATE:
            return None
        try:
            raw = base64.b64decode(state.encode("ascii"), altchars=b"-_", validate=True)
        except ValueError:  # other characters, or a length that base64 does not have
            return None
        head = len(_VERSION) + _NONCE_BYTES
        # Base64 ignores some bits at its end: accept only the one text that encodes these bytes.
        if not raw.startswith(_VERSION) or base64.urlsafe_b64encode(raw) != state.encode("ascii"):
            return None
        for secret in self._keys.secrets:
            try:
                plaintext = AESGCM(secret).decrypt(raw[len(_VERSION) : head], raw[head:], bound.to_bytes())
                return StateToken.model_validate_json(plaintext)
            except (InvalidTag, ValidationError, ValueError):  # ValueError: a nonce that is too short
                continue
        return None


def digest(params: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a request's params without those of NOT_BOUND; the order of members does not matter."""
    bound = {name: value for name, value in params.items() if name not in NOT_BOUND}
    return hashlib.sha256(payload.dumps_canonical(bound)).hexdigest()
