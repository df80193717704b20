"""Log-ins of hosts: codes that people's browsers carry, and the tokens that hosts exchange them for.

    decision ──> durable, with the code if it is yes: the first one on a page of consent counts
    code     ──> good for a minute, once
    exchange ──> code used and token made, in one commit; so of fifty exchanges one gets tokens
    again    ──> a second exchange with the right verifier ends the tokens of the first (RFC 6749, 4.1.2)
    refresh  ──> a new pair of tokens, in one commit (`core/logins/issued.py`)

That a repeated exchange ends the log-in harms no honest host: if its response got lost, nobody else has the tokens, and
it has to begin again in any case. Somebody who has the code without the verifier of PKCE ends nothing.

Everything is in the store, so each step may be another member's of a fleet.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hubbubd.bounds import Moment, Span
from hubbubd.core.access import Grant, Role
from hubbubd.core.logins import issued, statements
from hubbubd.core.logins.issued import ACCESS_S, CODE_S, USED_CODE_RETENTION_S, Digests, RefreshVerdict, TokenLogin
from hubbubd.core.logins.refusals import LoginRefusal, invalid_grant
from hubbubd.errors import FailedPrecondition, ResourceExhausted
from hubbubd.runtime.oversight.tokens import PREFIX, Token, Tokens, is_expired, token_digest
from hubbubd.runtime.records import Change, Ledger, Table
from hubbubd.timing.clock import Clock

CODE: Final = "hbx_"
REFRESH: Final = "hbr_"
"""What codes and refresh tokens begin with."""

KEY_ID: Final = "statements"
"""Id of the only `LoginKey`."""

CODES_PER_PERSON: Final = 20
"""The most codes of one person that are not exchanged yet; one more deletes the oldest."""

DECISIONS_PER_PERSON: Final = 200
"""The most decisions of one person that are stored; one more is refused."""

DECIDED_S: Final = 3600.0
"""Seconds for which a decision is stored after its page has expired."""

LOGINS_PER_PERSON: Final = 100
"""The most log-ins that one person has granted; one more ends the one that was not refreshed for the longest time."""

_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")

_REFRESH_FORM: Final = re.compile(rf"{REFRESH}([0-9a-f]{{12}})_([0-9a-f]{{22}})_([A-Za-z0-9_-]{{43}})")


@dataclass(frozen=True, slots=True)
class LoginKey:
    """The key of statements, in hexadecimal; all members of a fleet have the same."""

    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationCode:
    """The record of a code: a person's consent, for the host that is to exchange it. `id` is the code's digest.

    `redirect_named` says that the host named `redirect_uri` in its request; `challenge` is that of PKCE. `endpoint` is
    a path, `lasts_s` how long the log-in is to last.
    """

    id: str
    client_id: str
    client_name: str
    redirect_uri: str
    redirect_named: bool
    redirect_host: str
    challenge: str
    endpoint: str
    servers: tuple[str, ...]
    granted_by: str
    granted_with: str
    ends_at: Moment | None
    """When the person's own credential ends."""
    lasts_s: Span
    created_at: Moment
    token_id: str = ""
    """The id of the token for which the code was exchanged; "" before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginDecision:
    """A person's decision on a page of consent. `id` is the digest of the page's statement."""

    id: str
    decided_by: str
    is_allowed: bool
    page_until: Moment
    """When the page expires: from then on nobody can decide on it."""


class DecidedBefore(FailedPrecondition):
    """There is a decision on this page of consent already, given by `is_allowed`; the first decision counts."""

    def __init__(self, *, is_allowed: bool) -> None:
        super().__init__("this question was answered before", reason="LOGIN_DECIDED")
        self.is_allowed = is_allowed


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """The access token and refresh token that a host gets. `token` is their record."""

    token: Token
    access: str
    refresh: str
    expires_in_s: int


@dataclass(frozen=True, slots=True)
class _NewTokens:
    """The texts of new tokens, valid once their digests are durable. All tokens of a log-in have the same `family`."""

    access: str
    family: str
    refresh: str

    @classmethod
    def make(cls, token_id: str, family: str) -> "_NewTokens":
        """Return new random tokens. Both contain the id of their record, the refresh token the family as well."""
        access = f"{PREFIX}{token_id}_{secrets.token_urlsafe(32)}"
        return cls(access, family, f"{REFRESH}{token_id}_{family}_{secrets.token_urlsafe(32)}")

    @property
    def digests(self) -> Digests:
        """The digests of both tokens, as stored in records."""
        return Digests(access=token_digest(self.access), refresh=token_digest(self.refresh))

    def issue(self, token: Token, now: float) -> IssuedTokens:
        """Return the tokens for the host: texts, their record `token`, and how many seconds the access token lasts.

        `now` is in seconds since the epoch.
        """
        lasts_s = ACCESS_S if token.expires_at is None else min(ACCESS_S, token.expires_at - now)
        return IssuedTokens(token, self.access, self.refresh, max(1, int(lasts_s)))


@dataclass(eq=False, repr=False)
class Logins:
    """The log-ins of hosts."""

    ledger: Ledger
    codes: Table[AuthorizationCode]
    decisions: Table[LoginDecision]
    keys: Table[LoginKey]
    tokens: Tokens
    clock: Clock

    async def statement_key(self) -> bytes:
        """Return the key that signs statements (the data of pages of consent) and codes.

        If there is no key, make one, durable on return. Raises Unavailable.
        """
        key = self.keys.record(KEY_ID)
        if key is None:
            await self.ledger.catch_up()  # another member may have made it
            new = LoginKey(secrets.token_hex(32))
            key = await self.ledger.change(self.keys, KEY_ID, lambda stored: stored or new)
        assert key is not None, "it is never deleted"
        return bytes.fromhex(key.secret)

    async def make_code(self, statement: str) -> str:
        """Return the code that the host gets once a person has consented; `statement` is the signed data of the page.

        The code is derived from the statement, so that only the code's digest need be stored. Raises Unavailable.
        """
        proof = statements.mac(await self.statement_key(), "code", statement.encode())
        return f"{CODE}{base64.urlsafe_b64encode(proof).decode().rstrip('=')}"

    async def allow(self, consent: AuthorizationCode, statement: str, page_until: float) -> str:
        """Store that a person consents, and return the code for the host; `statement` is the signed data of the page.

        `id` and `created_at` of `consent` are set here; `page_until` is when the page expires, in seconds since the
        epoch. Beyond CODES_PER_PERSON this deletes the person's oldest code. Raises DecidedBefore, ResourceExhausted,
        Unavailable.
        """
        code = await self.make_code(statement)

        def plan_consent() -> tuple[None, Sequence[Change[Any]]]:
            """Plan to store decision and code, and to delete old codes and the person's oldest beyond the limit."""
            now = self.clock.now()
            decision_changes = self._plan_decision(statement, consent.granted_by, page_until, now, is_allowed=True)
            record = replace(consent, id=token_digest(code), created_at=now)
            unused = sorted(
                (each for each in self.codes if not each.token_id and each.granted_by == consent.granted_by),
                key=lambda each: each.created_at,
            )
            # Also codes with a negative age: the clock was set back since, so their age is unknown.
            superfluous = {each.id for each in self.codes if not 0 <= now - each.created_at < USED_CODE_RETENTION_S}
            superfluous |= {each.id for each in unused[: max(0, len(unused) - CODES_PER_PERSON + 1)]}
            deletions = [self.codes.change(id_, None) for id_ in superfluous]
            return None, [*decision_changes, *deletions, self.codes.new(record.id, record)]

        await self.ledger.transact(plan_consent)
        return code

    async def refuse(self, by: str, statement: str, page_until: float) -> None:
        """Store that a person has refused a log-in on the page with a statement.

        `page_until` is when the page expires, in seconds since the epoch. Raises DecidedBefore, ResourceExhausted,
        Unavailable.
        """

        def plan_refusal() -> tuple[None, Sequence[Change[Any]]]:
            """Plan to store the decision. Raises DecidedBefore, ResourceExhausted."""
            return None, self._plan_decision(statement, by, page_until, self.clock.now(), is_allowed=False)

        await self.ledger.transact(plan_refusal)

    def _plan_decision(
        self, statement: str, by: str, page_until: float, now: float, *, is_allowed: bool
    ) -> list[Change[Any]]:
        """Return the changes that store a decision about a log-in and delete old decisions.

        Raises DecidedBefore, and ResourceExhausted if the person has decided on too many pages of late.
        """
        decision = LoginDecision(
            id=token_digest(statement), decided_by=by, is_allowed=is_allowed, page_until=page_until
        )
        if (before := self.decisions.record(decision.id)) is not None:
            raise DecidedBefore(is_allowed=before.is_allowed)
        expired = {each.id for each in self.decisions if abs(now - each.page_until) > DECIDED_S}
        if sum(each.decided_by == by and each.id not in expired for each in self.decisions) >= DECISIONS_PER_PERSON:
            raise ResourceExhausted(
                f"{by} has decided on {DECISIONS_PER_PERSON} log-ins a short while ago; try again in an hour",
                reason="TOO_MANY_LOGIN_DECISIONS",
            )
        return [*(self.decisions.change(id_, None) for id_ in expired), self.decisions.new(decision.id, decision)]

    async def find_code(self, code: str) -> AuthorizationCode:
        """Return the record of a code, used or not. Raises LoginRefusal for an unknown code, and Unavailable."""
        found = self.codes.record(token_digest(code))
        if found is None:
            await self.ledger.catch_up()  # another member may have made it
            found = self.codes.record(token_digest(code))
        if found is None:
            raise invalid_grant("this code is not known here: log in again")
        return found

    async def exchange(self, code: str, client_id: str, redirect_uri: str | None, verifier: str) -> IssuedTokens:
        """Exchange a code for tokens, once; durable on return. A second exchange is refused and ends the log-in.

        `redirect_uri` is None if the host names none; `verifier` is that of PKCE. Raises LoginRefusal, Unavailable.
        """
        record_id = (await self.find_code(code)).id
        token_id = secrets.token_hex(6)
        new = _NewTokens.make(token_id, secrets.token_hex(11))

        def plan_exchange() -> tuple[IssuedTokens | None, Sequence[Change[Any]]]:
            """Plan new tokens. For a code that was used before, plan the end of its log-in instead, and return None.

            Raises LoginRefusal for any other code that gets no tokens.
            """
            now = self.clock.now()
            record = self.codes.record(record_id)
            if record is None:
                raise invalid_grant("this code is not known here: log in again")
            _check_exchange(record, client_id, redirect_uri, verifier)
            if record.token_id:
                issued_token = self.tokens.find_by_id(record.token_id)
                return None, [] if issued_token is None else self.tokens.plan_end(issued_token)
            if not 0 <= now - record.created_at < CODE_S:
                raise invalid_grant(f"this code was good for {CODE_S:g} s: log in again")
            if self.tokens.is_gone(record.granted_with):
                raise invalid_grant("the credential of the person who has allowed this was revoked: log in again")
            replaced = self._find_replaced(record, now)
            token = self._make_token(token_id, record, new, now, replaced)
            code_change = self.codes.change(record.id, replace(record, token_id=token_id))
            return new.issue(token, now), [code_change, *self.tokens.plan_new(token, replaced)]

        tokens = await self.ledger.transact(plan_exchange)
        if tokens is None:
            raise invalid_grant("this code was used before, so what it was exchanged for has ended: log in again")
        return tokens

    async def refresh(self, refresh_token: str, client_id: str, endpoint: str | None = None) -> IssuedTokens:
        """Give a host a new access token and refresh token for its refresh token; durable on return.

        `endpoint` is the path for which the host requests them, None for any. A refresh token that was used before is
        refused, and its log-in ends; but the host gets tokens again if the response with the last ones may be lost.
        Raises LoginRefusal, Unavailable.
        """
        token_id, family = await self._parse_refresh(refresh_token)
        new = _NewTokens.make(token_id, family)

        def plan_refresh() -> tuple[IssuedTokens | None, Sequence[Change[Any]]]:
            """Plan new tokens. For a token that was used before, plan the end of its log-in instead, and return None.

            Raises LoginRefusal for any other token that gets no new tokens.
            """
            now = self.clock.now()
            token = self.tokens.find_by_id(token_id)
            if token is None or token.login is None or self.tokens.is_gone(token.login.granted_with):
                raise _unknown_refresh_error()
            verdict = issued.judge_refresh(token.login, token_digest(family), token_digest(refresh_token), now)
            if verdict is RefreshVerdict.UNKNOWN or token.login.client_id != client_id:
                raise _unknown_refresh_error()
            if endpoint not in (None, token.login.endpoint):
                raise LoginRefusal("invalid_target", f"this log-in is good for {token.login.endpoint}")
            if is_expired(token, now):
                raise invalid_grant("this log-in is over: log in again")
            if verdict is RefreshVerdict.STOLEN:
                return None, self.tokens.plan_end(token)
            is_repeated = verdict is RefreshVerdict.REPEATED
            login = issued.with_new_tokens(token.login, token.digest, new.digests, now, is_repeated=is_repeated)
            new_record = replace(token, digest=new.digests.access, login=login)
            return new.issue(new_record, now), [self.tokens.plan_change(new_record)]

        tokens = await self.ledger.transact(plan_refresh)
        if tokens is None:
            raise invalid_grant("this refresh token was used before, so the log-in has ended: log in again")
        return tokens

    async def revoke(self, text: str, client_id: str) -> Token | None:
        """End the log-in to which an access or refresh token `text` of a host belongs (RFC 7009); durable on return.

        Return the record of the log-in; None if no log-in of this client has the token. Raises Unavailable.
        """
        token_id = text.removeprefix(PREFIX).removeprefix(REFRESH)[:12]
        if self.tokens.find_by_id(token_id) is None:
            await self.ledger.catch_up()  # another member may have made it

        def plan_revocation() -> tuple[Token | None, Sequence[Change[Any]]]:
            """Plan the end of the log-in that has the token, and return its record; without such a log-in None."""
            token = self.tokens.find_by_id(token_id)
            if token is None or token.login is None or token.login.client_id != client_id:
                return None, ()
            login, digest = token.login, token_digest(text)
            match = _REFRESH_FORM.fullmatch(text)
            digests = (token.digest, login.former_access, login.refresh)
            is_own_token = any(hmac.compare_digest(digest, each) for each in digests)
            # Each refresh token of the log-in contains the family, so that a former one ends the log-in, too.
            is_own_token |= match is not None and hmac.compare_digest(token_digest(match[2]), login.family)
            return (token, self.tokens.plan_end(token)) if is_own_token else (None, ())

        return await self.ledger.transact(plan_revocation)

    async def _parse_refresh(self, refresh_token: str) -> tuple[str, str]:
        """Return the id of a refresh token's record and its family, which is the same in all of a log-in.

        If the token is not the newest that this member knows, first apply what other members have committed. Raises
        LoginRefusal for text of another form, and Unavailable.
        """
        form = _REFRESH_FORM.fullmatch(refresh_token)
        if form is None:
            raise _unknown_refresh_error()
        token = self.tokens.find_by_id(form[1])
        if token is None or token.login is None or token.login.refresh != token_digest(refresh_token):
            await self.ledger.catch_up()
        return form[1], form[2]

    def _make_token(
        self, token_id: str, code: AuthorizationCode, new: _NewTokens, now: float, replaced: Sequence[Token]
    ) -> Token:
        """Return the token record of a new log-in by `code`; nothing is stored here.

        Its name is one that no other token has, except tokens in `replaced`, which are deleted in the same commit.
        """
        ends_at, replaced_ids = now + code.lasts_s, {token.id for token in replaced}
        names = {token.name for token in self.tokens.all() if token.id not in replaced_ids}
        return Token(
            id=token_id,
            name=issued.choose_free_name(issued.make_token_name(code.client_name), names),
            digest=new.digests.access,
            grants=(Grant(Role.CALLER, code.servers),),
            may_name_others=False,
            created_at=now,
            created_by=code.granted_by,
            expires_at=ends_at if code.ends_at is None else min(ends_at, code.ends_at),
            login=TokenLogin(
                client_id=code.client_id,
                client_name=code.client_name,
                redirect_host=code.redirect_host,
                granted_by=code.granted_by,
                granted_with=code.granted_with,
                endpoint=code.endpoint,
                family=token_digest(new.family),
                refresh=new.digests.refresh,
                access_until=now + ACCESS_S,
                refreshed_at=now,
            ),
        )

    def _find_replaced(self, code: AuthorizationCode, now: float) -> list[Token]:
        """Return the tokens to delete for a new log-in: those of expired log-ins, and the person's beyond the limit.

        The person's log-ins that were not refreshed for the longest time are replaced first. Raises LoginRefusal if the
        hub has as many tokens as it may have.
        """
        tokens = self.tokens.all()
        logins = [token for token in tokens if token.login is not None]
        expired = [token for token in logins if is_expired(token, now)]
        of_person = [token for token in logins if token.created_by == code.granted_by and not is_expired(token, now)]
        oldest = sorted(of_person, key=_refreshed_at)
        replaced = [*expired, *oldest[: max(0, len(oldest) - LOGINS_PER_PERSON + 1)]]
        if len(tokens) - len(replaced) >= self.tokens.max_tokens:
            limit = f"the hub has {self.tokens.max_tokens} tokens already (max_tokens)"
            raise LoginRefusal("temporarily_unavailable", f"{limit}: its operator has to revoke some", status=503)
        return replaced


def _refreshed_at(token: Token) -> float:
    """Return when a token's log-in was last refreshed; 0 for a token without a log-in."""
    return 0.0 if token.login is None else token.login.refreshed_at


def _check_exchange(code: AuthorizationCode, client_id: str, redirect_uri: str | None, verifier: str) -> None:
    """Raise LoginRefusal unless client, redirect address and PKCE verifier fit those for which the code was made.

    RFC 6749, 4.1.3; RFC 7636, 4.6.
    """
    if code.client_id != client_id:
        raise invalid_grant("this code is not of this program")
    # A host that named no address in its request to log in may leave it out here, too.
    if redirect_uri != code.redirect_uri if code.redirect_named else redirect_uri not in (None, code.redirect_uri):
        raise invalid_grant("redirect_uri must be the same as in the request to log in")
    if not _VERIFIER.fullmatch(verifier):
        raise invalid_grant("code_verifier must have 43 to 128 letters, digits or -._~ (RFC 7636)")
    digest = hashlib.sha256(verifier.encode()).digest()
    if not hmac.compare_digest(base64.urlsafe_b64encode(digest).decode().rstrip("="), code.challenge):
        raise invalid_grant("code_verifier does not fit the code_challenge of the request to log in")


def _unknown_refresh_error() -> LoginRefusal:
    """Return the error for a refresh token that fits no log-in of the client."""
    return invalid_grant("this refresh token is not known here, or its log-in has ended: log in again")
