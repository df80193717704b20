"""The log-in that a token was given for, and how its access and refresh tokens follow one another.

    access token    hbt_ID_SECRET          good for an hour; the one before stays good for its own time
    refresh token   hbr_ID_FAMILY_SECRET   good once; each use gives a new pair

FAMILY is the same in all refresh tokens of a log-in, so one that was used before differs from one that never was. Only
digests are kept. A refresh token that comes a second time ends the log-in: of two who have it, one has stolen it. There
is one exception. A host whose response got lost may repeat its request within GRACE_S, as long as nobody has used what
the response had. It gets new tokens, and the lost ones are void. That helps no thief: if host and thief both got
tokens, those of one of them are void, and to refresh with these ends the log-in.
"""

import hmac
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from hubbubd.bounds import Moment
from hubbubd.core.access import ANY, matches

ACCESS_S: Final = 3600.0
"""Seconds for which an access token is good."""

GRACE_S: Final = 60.0
"""Seconds within which a refresh may be repeated whose response got lost."""

CODE_S: Final = 60.0
"""Seconds within which a code has to be exchanged."""

REMEMBERED_S: Final = 600.0
"""Seconds for which a used code is remembered, so that its second use is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """Digests of what is given out at once: an access token, and the secret part of a refresh token."""

    access: str
    refresh: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogin:
    """What a token's record has besides if a log-in gave it. `digest` of the record is that of the access token."""

    client_id: str
    client_name: str
    redirect_host: str
    granted_by: str
    granted_with: str
    """The credential of the person: the token ends with it."""
    endpoint: str
    """The path of the endpoint that it is good for."""
    family: str
    """Digest of what all refresh tokens have in common."""
    refresh: str
    access_until: Moment
    refreshed_at: Moment
    is_used: bool = False
    """Whether the newest access token was used."""
    former_refresh: str = ""
    former_access: str = ""
    former_until: Moment = 0.0


class RefreshVerdict(Enum):
    """What a refresh token is."""

    CURRENT = auto()
    REPEATED = auto()
    """The one before; what it was exchanged for is lost, and unused."""
    STOLEN = auto()
    """One that was used before, and so is in two hands."""
    UNKNOWN = auto()


def judge_refresh(login: TokenLogin, family: str, refresh: str, now: float) -> RefreshVerdict:
    """Return the verdict on a refresh token, by the digests of its parts: what its log-in shares, and its secret.

    A token before the current one is REPEATED within GRACE_S if nobody has used the tokens that it gave, else STOLEN.
    """
    if not hmac.compare_digest(login.family, family):
        return RefreshVerdict.UNKNOWN
    if hmac.compare_digest(login.refresh, refresh):
        return RefreshVerdict.CURRENT
    repeated = login.former_refresh and hmac.compare_digest(login.former_refresh, refresh)
    if repeated and not login.is_used and 0 <= now - login.refreshed_at < GRACE_S:
        return RefreshVerdict.REPEATED
    return RefreshVerdict.STOLEN


def with_new_tokens(login: TokenLogin, access: str, new: Digests, now: float, *, repeated: bool) -> TokenLogin:
    """Return a log-in with new tokens. `access` is the digest of the access token that it had until now.

    `repeated` says that the new tokens take the place of tokens that got lost on their way to the host.
    """
    after = replace(login, refresh=new.refresh, access_until=now + ACCESS_S, is_used=False)
    if repeated:  # the tokens that got lost are void; the time of the grace does not begin again
        return after
    return replace(
        after,
        refreshed_at=now,
        former_refresh=login.refresh,
        former_access=access,
        former_until=login.access_until,
    )


def intersect_patterns(person: Sequence[str], shown: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of the servers that an endpoint shows (`shown`) and a person may call (`person`).

    If one side is all servers, these are the patterns of the other side. Else these are names that match both sides:
    names among the patterns, which have no wildcards, and names of the servers `known` now.
    """
    if ANY in person:
        return tuple(dict.fromkeys(shown))
    if ANY in shown:
        return tuple(dict.fromkeys(person))
    exact = [name for name in (*person, *shown) if not set("*?[") & set(name)]
    return tuple(dict.fromkeys(name for name in (*exact, *known) if matches(person, name) and matches(shown, name)))


def make_token_name(client: str) -> str:
    """Return the name of a token for a program of this name: small letters, digits and `-`."""
    kept = "".join(each if each.isascii() and each.isalnum() else " " for each in client.lower())
    return "-".join(kept.split())[:40].strip("-") or "host"


def choose_free_name(wanted: str, taken: Collection[str]) -> str:
    """Return a name that no token has: the wanted name, or the same with the first number that is free (`NAME-2`)."""
    numbered = (wanted if number == 1 else f"{wanted}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in numbered if name not in taken)
