"""API tokens: created, listed and revoked over the API; only their digests are stored.

A token is `hbt_ID_SECRET`; the secret has 256 random bits and is shown once. The store has its SHA-256, without a salt,
as a random secret cannot be guessed.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hubbubd.bounds import Moment, Span
from hubbubd.core.access import Grant, Principal
from hubbubd.errors import AlreadyExists, NotFound, ResourceExhausted, Unauthenticated
from hubbubd.runtime.records import Change, Ledger, Table, delete
from hubbubd.timing.clock import Clock

PREFIX = "hbt_"
CREDENTIAL = "token:"
"""What the credential of a token begins with; its id follows."""

MINTED = "minted"
"""Id of the only record of its noun."""

USED_S = 60.0
"""Resolution of `last_used_at`, in seconds."""

_FORM = re.compile(rf"{PREFIX}([0-9a-f]{{12}})_[A-Za-z0-9_-]{{43}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token's record, without its secret. Times are seconds since the epoch; `digest` is hexadecimal."""

    id: str
    name: str
    digest: str
    grants: tuple[Grant, ...]
    may_name_others: bool
    created_at: Moment
    created_by: str
    expires_at: Moment | None
    last_used_at: Moment | None = None
    hold_s: Span | None = None
    """For how many seconds requests of hosts are held while people are asked; None for what the profile says."""

    @property
    def credential(self) -> str:
        """The id of the credential in principals, the audit log and revocation."""
        return f"{CREDENTIAL}{self.id}"


@dataclass(frozen=True, slots=True)
class Minted:
    """The newest token, by id. Every creation changes this one record, so that each sees all those before it.

    So names are unique and the limit holds for all who share the store.
    """

    newest: str


class Tokens:
    """The tokens of a hub; implements `rpc.auth.Authenticator`."""

    def __init__(
        self, ledger: Ledger, table: Table[Token], minted: Table[Minted], clock: Clock, *, max_tokens: int
    ) -> None:
        self.max_tokens = max_tokens
        self._ledger = ledger
        self._table = table
        self._minted = minted
        self._clock = clock
        self._known: dict[str, tuple[Token, Principal]] = {}
        self._revoked: set[str] = set()
        self._listeners: list[Callable[[str], None]] = []
        table.follow(self._follow)

    def recover(self) -> None:
        """Load the tokens from the store."""
        self._table.each(lambda token: self._follow(None, token))

    def on_revoked(self, listener: Callable[[str], None]) -> None:
        """Call the listener with each credential revoked from now on. It must not block."""
        self._listeners.append(listener)

    def all(self) -> list[Token]:
        """Return all tokens, expired ones included, newest first."""
        return sorted(self._table, key=lambda token: (token.created_at, token.id), reverse=True)

    async def create(
        self,
        name: str,
        grants: Sequence[Grant],
        *,
        by: str,
        ttl_s: float | None,
        may_name_others: bool,
        hold_s: float | None = None,
    ) -> tuple[Token, str]:
        """Create a token and return its record and its text, which is not available again.

        Replaces an expired token of the same name. Raises AlreadyExists (TOKEN_EXISTS), ResourceExhausted
        (TOO_MANY_TOKENS) and Unavailable.
        """
        token_id = secrets.token_hex(6)
        text = f"{PREFIX}{token_id}_{secrets.token_urlsafe(32)}"

        def plan() -> tuple[Token, Sequence[Change[Any]]]:
            now = self._clock.now()
            token = Token(
                id=token_id,
                name=name,
                digest=_digest(text),
                grants=tuple(grants),
                may_name_others=may_name_others,
                created_at=now,
                created_by=by,
                expires_at=None if ttl_s is None else now + ttl_s,
                hold_s=hold_s,
            )
            replaced = [self._table.change(old.id, None) for old in self._replaced(name, now)]
            minted = self._minted.change(MINTED, Minted(token_id))
            return token, [*replaced, self._table.new(token_id, token), minted]

        return await self._ledger.transact(plan), text

    def _replaced(self, name: str, now: float) -> list[Token]:
        """Return the expired tokens that a new one of this name replaces. Raises AlreadyExists, ResourceExhausted."""
        same = [token for token in self._table if token.name == name]
        others = sum(token.name != name for token in self._table)
        if any(not _expired(token, now) for token in same):
            raise AlreadyExists(f"a token {name!r} exists already", reason="TOKEN_EXISTS", metadata={"token": name})
        if others >= self.max_tokens:
            raise ResourceExhausted(
                f"there are {self.max_tokens} tokens already",
                reason="TOO_MANY_TOKENS",
                metadata={"limit": str(self.max_tokens)},
            )
        return same

    def is_gone(self, credential: str) -> bool:
        """Return whether a credential is a token that is not there any more."""
        return credential.startswith(CREDENTIAL) and credential.removeprefix(CREDENTIAL) not in self._known

    def has(self, name: str) -> bool:
        """Return whether there is a token of this name, expired or not."""
        return self._named(name) is not None

    def _named(self, name: str) -> Token | None:
        return next((token for token in self._table if token.name == name), None)

    async def revoke(self, name: str) -> Token:
        """Delete a token; streams that were opened with it end. Raises NotFound and Unavailable."""
        token = self._named(name)
        if token is None:
            raise NotFound("token", name)
        self._revoked.add(token.id)  # it is refused during the commit, too
        try:
            await self._ledger.change(self._table, token.id, delete)
        finally:
            self._revoked.discard(token.id)
        return token

    async def principal(self, token: str) -> Principal | None:
        """Return the principal of a token; None for text of another form.

        Raises Unauthenticated (TOKEN_INVALID, CREDENTIAL_ENDED).
        """
        if not token.startswith(PREFIX):
            return None
        form = _FORM.fullmatch(token)
        known = self._known.get(form[1]) if form is not None else None
        if known is None or not hmac.compare_digest(_digest(token), known[0].digest) or known[0].id in self._revoked:
            raise Unauthenticated("this token is not known here, or was revoked", reason="TOKEN_INVALID")
        record, principal = known
        now = self._clock.now()
        if _expired(record, now):
            raise Unauthenticated(f"the token {record.name} has expired", reason="CREDENTIAL_ENDED")
        if record.last_used_at is None or now - record.last_used_at >= USED_S:
            self._ledger.later(self._table, record.id, partial(_used, now))
            self._known[record.id] = replace(record, last_used_at=now), principal
        return principal

    def _follow(self, before: Token | None, after: Token | None) -> None:
        if after is not None:
            self._known[after.id] = after, _principal(after)
        elif before is not None and self._known.pop(before.id, None) is not None:
            for listener in self._listeners:
                listener(before.credential)


def _used(now: float, token: Token | None) -> Token | None:
    """Return a token as used; one that was revoked is not made again."""
    return token if token is None or (token.last_used_at or 0.0) >= now else replace(token, last_used_at=now)


def _principal(token: Token) -> Principal:
    return Principal(
        name=token.name,
        grants=token.grants,
        credential=token.credential,
        expires_at=token.expires_at,
        may_name_others=token.may_name_others,
        hold_s=token.hold_s,
    )


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _expired(token: Token, now: float) -> bool:
    return token.expires_at is not None and now >= token.expires_at
