"""Who sits at a browser: a code says it once, a cookie from then on. Records and decisions.

    a credential of the person ──CreateLoginCode──> LoginCode, one use, 10 minutes
    the code, typed into the hub's own page ──> Visit, named by a cookie, until the credential ends, 12 hours at most

Only digests are kept. A code has 40 random bits: enough for its ten minutes, as guesses are rate-limited.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hubbubd import bounds
from hubbubd.core.access import Grant, Principal

ALPHABET: Final = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Letters and digits that nobody takes for others: no I, L, O, 0, 1."""

CODE_CHARS: Final = 8
GROUP_CHARS: Final = 4

CODE_S: Final = 600.0
"""Seconds for which a code is good."""

VISIT_S: Final = 12 * 3600.0
"""Seconds for which a browser is remembered, over TLS."""

PLAIN_VISIT_S: Final = 600.0
"""The same without TLS, and only until the person has decided: a cookie of 127.0.0.1 goes to every port of it."""

ENDED_CODE_RETENTION_S: Final = 3600.0
"""Seconds for which an ended code is stored, so that the hub can say that it was used or has expired."""

MAX_CODES: Final = 5
"""The most codes of one person that are good at a time; a new one ends the oldest."""

_MAX_TYPED_CHARS: Final = 64
"""The most characters of a typed code; a longer text is no code."""

_COOKIE_CHARS: Final = 43
"""Characters of a cookie: 256 random bits."""


class CodeProblem(StrEnum):
    """Why a code lets nobody in; the value is the outcome in the audit log."""

    UNKNOWN = "LOGIN_CODE_UNKNOWN"
    USED = "LOGIN_CODE_USED"
    EXPIRED = "LOGIN_CODE_EXPIRED"
    ENDED = "LOGIN_CODE_ENDED"
    """The credential that has asked for it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginCode:
    """A code. Times are seconds since the epoch; `id` is its digest, `used_at` None while it is good.

    `name`, `credential`, `grants` and `credential_until` are those of the principal that has asked for it.
    """

    id: str
    name: str
    credential: str
    grants: tuple[Grant, ...]
    credential_until: bounds.Moment | None
    created_at: bounds.Moment
    expires_at: bounds.Moment
    used_at: bounds.Moment | None = None

    def is_good(self, now: float) -> bool:
        """Return whether the code can still be used."""
        return self.used_at is None and now < self.expires_at

    def may_be_deleted(self, now: float) -> bool:
        """Return whether the code ended ENDED_CODE_RETENTION_S ago, so that nobody needs to know what became of it."""
        return now >= self.expires_at + ENDED_CODE_RETENTION_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A browser of which the hub knows who sits at it. `id` is the digest of its cookie; the rest as in `LoginCode`.

    `decided` is the digest of what the person has decided on, where the visit ends with that.
    """

    id: str
    name: str
    credential: str
    grants: tuple[Grant, ...]
    credential_until: bounds.Moment | None
    created_at: bounds.Moment
    expires_at: bounds.Moment
    decided: str = ""


@dataclass(frozen=True, slots=True)
class Visitor:
    """The person at a browser, until a time in seconds since the epoch."""

    principal: Principal
    until: float

    @property
    def name(self) -> str:
        return self.principal.name

    @property
    def credential(self) -> str:
        return self.principal.credential


def read_code(text: str) -> str | None:
    """Return the code in a text that a person has typed, in its usual form (`format_code`); None if it is no code."""
    letters = "".join(each for each in text[:_MAX_TYPED_CHARS].upper() if each.isalnum())
    if len(text) > _MAX_TYPED_CHARS or len(letters) != CODE_CHARS or not set(letters) <= set(ALPHABET):
        return None
    return format_code(letters)


def format_code(letters: str) -> str:
    """Return the letters of a code as people read them."""
    return f"{letters[:GROUP_CHARS]}-{letters[GROUP_CHARS:]}"


def is_cookie(value: str) -> bool:
    """Return whether a value has the form of a cookie of a hub."""
    return len(value) == _COOKIE_CHARS and value.isascii() and value.replace("-", "").replace("_", "").isalnum()


def digest(secret: str) -> str:
    """Return the SHA-256, in hex: of a code or cookie the id of its record; or of a text that a person decides on."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_login_code(code: str, principal: Principal, now: float) -> LoginCode:
    """Return the record of a new code for a principal."""
    return LoginCode(
        id=digest(code),
        name=principal.name,
        credential=principal.credential,
        grants=principal.grants,
        credential_until=principal.expires_at,
        created_at=now,
        expires_at=now + CODE_S,
    )


def new_visit(cookie: str, code: LoginCode, now: float, *, secure: bool) -> Visit:
    """Return the record of a browser in which a code was typed; `secure` says that the browser speaks TLS.

    Without TLS the browser is remembered for a shorter time: every port of the machine gets its cookie.
    """
    return Visit(
        id=digest(cookie),
        name=code.name,
        credential=code.credential,
        grants=code.grants,
        credential_until=code.credential_until,
        created_at=now,
        expires_at=now + (VISIT_S if secure else PLAIN_VISIT_S),
    )


def find_visitor(visit: Visit, now: float) -> Visitor | None:
    """Return the person at a browser; None once the visit (the record of the browser) or its credential has expired."""
    until = visit.expires_at if visit.credential_until is None else min(visit.expires_at, visit.credential_until)
    if now >= until:
        return None
    return Visitor(make_principal(visit), until)


def make_principal(record: LoginCode | Visit) -> Principal:
    """Return the person of a code or a visit as a principal, which may not name others, even if its credential may."""
    return Principal(
        name=record.name,
        grants=record.grants,
        credential=record.credential,
        expires_at=record.credential_until,
    )
