"""Sealed states of requests that ask for input: what a host sends back with its answers (2026-07-28, MRTR)."""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hubbubd import payload
from hubbubd.clock import Clock
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.downstream.messages import Refusal

LIFETIME_S: Final = 86400.0
_LEFT_OUT = frozenset({"_meta", "inputResponses", "requestState"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    call_id: str
    round: int
    principal: str
    profile: str
    method: str
    digest: str
    sealed_at: float


class Seal:
    def __init__(self, clock: Clock, key: bytes | None = None) -> None:
        self._clock = clock
        self._key = AESGCM(key or AESGCM.generate_key(256))

    def seal(self, handle: Handle) -> str:
        nonce = secrets.token_bytes(12)
        return base64.urlsafe_b64encode(nonce + self._key.encrypt(nonce, payload.dumps(asdict(handle)), None)).decode()

    def open(self, state: str) -> Handle:
        try:
            raw = base64.urlsafe_b64decode(state.encode("ascii"))
            handle = Handle(**payload.loads(self._key.decrypt(raw[:12], raw[12:], None)))
        except (ValueError, InvalidTag):
            raise Refusal(INVALID_PARAMS, "requestState is not one of this hub") from None
        if self._clock.now() > handle.sealed_at + LIFETIME_S:
            raise Refusal(INVALID_PARAMS, "requestState is not one of this hub")
        return handle


def digest(params: Mapping[str, Any]) -> str:
    bare = {key: value for key, value in params.items() if key not in _LEFT_OUT}
    return hashlib.sha256(payload.dumps(bare)).hexdigest()
