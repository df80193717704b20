"""API tokens: created, listed and revoked over the API; only their digests are stored.

A token is `hbt_ID_SECRET`; the secret has 256 random bits and is shown only once. The store has its SHA-256, without a
salt, as a random secret cannot be guessed. `logins.py` makes the tokens of hosts that a person has logged in.
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
from hubbubd.core.logins.issued import TokenLogin
from hubbubd.errors import AlreadyExists, NotFound, ResourceExhausted, Unauthenticated
from hubbubd.runtime.records import Change, Ledger, Table
from hubbubd.timing.bucket import Bucket
from hubbubd.timing.clock import Clock

PREFIX = "hbt_"
CREDENTIAL = "token:"
"""What the credential of a token begins with; its id follows."""

LOGIN = "login:"
"""What the names of principals of log-ins begin with; no other principal has such a name."""

NEWEST_ID = "minted"
"""Id of the only `NewestToken`."""

USED_S = 60.0
"""Resolution of `last_used_at`, in seconds."""

LOOKUPS_PER_S = 20.0
"""How often a second a member of a fleet reads the store for a token that it does not know."""

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
    """For how many seconds requests of hosts are held while people are asked; None for the setting of the profile."""
    login: TokenLogin | None = None
    """The log-in for which the token was made; None if it was created over the API."""

    @property
    def credential(self) -> str:
        """The id of the credential in principals, the audit log and revocation."""
        return f"{CREDENTIAL}{self.id}"


@dataclass(frozen=True, slots=True)
class NewestToken:
    """The id of the newest token. Every creation changes this one record, so that two at once conflict.

    Thus names are unique, and the limit holds for all hubs that share the store.
    """

    newest: str


class Tokens:
    """The tokens of a hub; implements `rpc.auth.Authenticator`."""

    def __init__(
        self, ledger: Ledger, table: Table[Token], newest_token: Table[NewestToken], clock: Clock, *, max_tokens: int
    ) -> None:
        """`newest_token` has one record, which each creation of a token changes."""
        self.max_tokens = max_tokens
        self._store_lookups = Bucket(LOOKUPS_PER_S, LOOKUPS_PER_S, clock.steady())
        self._ledger = ledger
        self._table = table
        self._newest_token = newest_token
        self._clock = clock
        self._principals: dict[str, tuple[Token, Principal]] = {}  # by id of the token
        self._being_revoked: set[str] = set()  # ids of tokens
        self._listeners: list[Callable[[str], None]] = []
        table.follow(self._update_principals)

    def recover(self) -> None:
        """Make the principals of all stored tokens; log and skip a token for which that fails."""
        self._table.for_each(lambda token: self._update_principals(None, token))

    def on_revoked(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the credential of each token deleted from now on. The listener must not block."""
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
        """Create a token, durable on return, and return its record and its text, which is not available again.

        `ttl_s` is after how many seconds the token ends, None for never; for `hold_s` see `Token`. An expired token of
        the same name is deleted. Raises AlreadyExists (TOKEN_EXISTS), ResourceExhausted (TOO_MANY_TOKENS) and
        Unavailable.
        """
        token_id = secrets.token_hex(6)
        text = f"{PREFIX}{token_id}_{secrets.token_urlsafe(32)}"

        def plan_token() -> tuple[Token, Sequence[Change[Any]]]:
            """Plan the new token, in place of expired tokens of its name. Raises AlreadyExists, ResourceExhausted."""
            now = self._clock.now()
            token = Token(
                id=token_id,
                name=name,
                digest=token_digest(text),
                grants=tuple(grants),
                may_name_others=may_name_others,
                created_at=now,
                created_by=by,
                expires_at=None if ttl_s is None else now + ttl_s,
                hold_s=hold_s,
            )
            return token, self.plan_new(token, self._find_replaced(name, now))

        return await self._ledger.transact(plan_token), text

    def plan_new(self, token: Token, replaced: Sequence[Token]) -> list[Change[Any]]:
        """Return the changes that create a token and delete those in `replaced`.

        Their commit conflicts with any other creation of a token meanwhile, so that names stay unique and the limit
        holds.
        """
        deleted = [self._table.change(old.id, None) for old in replaced]
        return [
            *deleted,
            self._table.new(token.id, token),
            self._newest_token.change(NEWEST_ID, NewestToken(token.id)),
        ]

    def plan_change(self, token: Token) -> Change[Any]:
        """Return the change that stores `token` in place of its record."""
        return self._table.change(token.id, token)

    def plan_end(self, token: Token) -> list[Change[Any]]:
        """Return the changes that delete a token, and the tokens of log-ins that people granted with it."""
        ended = [token, *(each for each in self._table if _granted_with(each) == token.credential)]
        return [self._table.change(each.id, None) for each in ended]

    def _find_replaced(self, name: str, now: float) -> list[Token]:
        """Return the expired tokens that a new token of this name replaces.

        Raises AlreadyExists if a token of this name has not expired, ResourceExhausted if there are too many others.
        """
        same_name = [token for token in self._table if token.name == name]
        others = sum(token.name != name for token in self._table)
        if any(not is_expired(token, now) for token in same_name):
            raise AlreadyExists(f"a token {name!r} exists already", reason="TOKEN_EXISTS", metadata={"token": name})
        if others >= self.max_tokens:
            raise ResourceExhausted(
                f"there are {self.max_tokens} tokens already",
                reason="TOO_MANY_TOKENS",
                metadata={"limit": str(self.max_tokens)},
            )
        return same_name

    def is_gone(self, credential: str) -> bool:
        """Return whether a credential is a token that has been deleted; False for any other kind of credential."""
        return credential.startswith(CREDENTIAL) and credential.removeprefix(CREDENTIAL) not in self._principals

    def has_name(self, name: str) -> bool:
        """Return whether there is a token of this name, expired or not."""
        return self._find_named(name) is not None

    def _find_named(self, name: str) -> Token | None:
        """Return the token of this name, expired or not; None if there is none."""
        return next((token for token in self._table if token.name == name), None)

    def find_by_id(self, token_id: str) -> Token | None:
        """Return the token with this id, expired or not; None if there is none."""
        return self._table.record(token_id)

    async def revoke(self, name: str) -> Token:
        """Delete a token and the tokens of log-ins that people granted with it; durable on return.

        Streams that were opened with these tokens end. Returns the record. Raises NotFound and Unavailable.
        """
        token = self._find_named(name)
        if token is None:
            raise NotFound("token", name)
        self._being_revoked.add(token.id)  # so that the token is refused during the commit, too
        try:
            await self._ledger.transact(lambda: (None, self.plan_end(token)))
        finally:
            self._being_revoked.discard(token.id)
        return token

    async def principal(self, token: str) -> Principal | None:
        """Return the principal of a token, and note the use, write-behind; None for text that is no API token.

        A member of a fleet that does not know the token first reads the store. Raises Unauthenticated (TOKEN_INVALID,
        CREDENTIAL_ENDED), and Unavailable in a fleet.
        """
        if not token.startswith(PREFIX):
            return None
        form, digest, now = _FORM.fullmatch(token), token_digest(token), self._clock.now()
        found = self._find(form[1], digest) if form is not None else None
        if found is None and form is not None and await self._catch_up_if_allowed():
            found = self._find(form[1], digest)
        if found is None:
            raise Unauthenticated("this token is not known here, or was revoked", reason="TOKEN_INVALID")
        record, principal = found
        if is_expired(record, now) or _is_access_expired(record, digest, now):
            raise Unauthenticated(f"the token {record.name} has expired", reason="CREDENTIAL_ENDED")
        if record.last_used_at is None or now - record.last_used_at >= USED_S or _is_first_use(record, digest):
            self._ledger.change_later(self._table, record.id, partial(_with_use, now, digest))
            # At once: the table's change comes when it is durable, and until then each use would be noted.
            self._principals[record.id] = _with_use(now, digest, record) or record, principal
        return principal

    async def _catch_up_if_allowed(self) -> bool:
        """Apply commits of other members, at most LOOKUPS_PER_S times a second; return whether this was done.

        Return False also without other members. Raises Unavailable.
        """
        if not self._ledger.shared or self._store_lookups.take(self._clock.steady()):
            return False
        await self._ledger.catch_up()
        return True

    def _find(self, token_id: str, digest: str) -> tuple[Token, Principal] | None:
        """Return the token with this id and digest, and its principal, expired or not.

        None if there is no such token, if it is being revoked, or if a person granted it with a token that has ended.
        """
        known = self._principals.get(token_id)
        if known is None or token_id in self._being_revoked:
            return None
        record, login = known[0], known[0].login
        is_newest = hmac.compare_digest(digest, record.digest)
        if login is None:
            return known if is_newest else None
        # After a refresh the former access token is still good for a while.
        if not is_newest and not hmac.compare_digest(digest, login.former_access):
            return None
        is_over = self.is_gone(login.granted_with) or login.granted_with.removeprefix(CREDENTIAL) in self._being_revoked
        return None if is_over else known

    def _update_principals(self, before: Token | None, after: Token | None) -> None:
        """Update the principals after a change of a token; notify listeners of a deleted token (`after` is None)."""
        if after is not None:
            self._principals[after.id] = after, _make_principal(after)
        elif before is not None and self._principals.pop(before.id, None) is not None:
            for listener in self._listeners:
                listener(before.credential)


def _with_use(now: float, digest: str, token: Token | None) -> Token | None:
    """Return a token with its use noted, at `now` and by the text with this digest.

    None for a token that was deleted meanwhile: as a step of write-behind, that leaves it deleted.
    """
    if token is None:
        return None
    login = replace(token.login, is_used=True) if token.login and _is_first_use(token, digest) else token.login
    return replace(token, last_used_at=max(token.last_used_at or 0.0, now), login=login)


def _is_first_use(token: Token, digest: str) -> bool:
    """Return whether the newest access token of a log-in is used for the first time."""
    return token.login is not None and not token.login.is_used and digest == token.digest


def _make_principal(token: Token) -> Principal:
    """Return the principal of callers with this token."""
    login = token.login
    return Principal(
        # A program chooses its own name: alone, it might be that of a person or of another token.
        name=token.name if login is None else f"{LOGIN}{login.granted_by}/{token.name}",
        grants=token.grants,
        credential=token.credential,
        expires_at=token.expires_at,
        may_name_others=token.may_name_others,
        hold_s=token.hold_s,
        endpoint="" if login is None else login.endpoint,
    )


def _granted_with(token: Token) -> str:
    """Return the credential with which a person granted this token's log-in; "" without a log-in."""
    return "" if token.login is None else token.login.granted_with


def _is_access_expired(token: Token, digest: str, now: float) -> bool:
    """Return whether the access token with this digest has expired, so that the host must refresh it.

    False for a token without a log-in. Work that was started with the access token goes on.
    """
    login = token.login
    return login is not None and now >= (login.access_until if digest == token.digest else login.former_until)


def token_digest(token: str) -> str:
    """Return the digest of a token (or another secret) for records: SHA-256, in hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_expired(token: Token, now: float) -> bool:
    """Return whether a token has an end, and has reached it."""
    return token.expires_at is not None and now >= token.expires_at
