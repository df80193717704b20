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

USED_CODE_RETENTION_S: Final = 600.0
"""Seconds for which a used code is remembered, so that its second use is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """Digests of a new access token, and of the secret part of the refresh token that is issued with it."""

    access: str
    refresh: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogin:
    """The part of a token's record that only tokens of a log-in have. Its other fields are digests and times.

    The record's own `digest` is that of the newest access token. The `former_...` fields are of the tokens before.
    """

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
    """What the hub thinks of a refresh token that a host sends."""

    CURRENT = auto()
    REPEATED = auto()
    """The token before the current one; the tokens that it was exchanged for are lost, and unused."""
    STOLEN = auto()
    """A token that was used before: two programs have it, and one of them has stolen it."""
    UNKNOWN = auto()


def judge_refresh(login: TokenLogin, family_digest: str, refresh_digest: str, now: float) -> RefreshVerdict:
    """Return the verdict on a refresh token, by the digests of its two parts: its family and its secret.

    UNKNOWN if the family is not the log-in's. The token before the current one is REPEATED within GRACE_S if nobody has
    used the tokens that it gave; any other token of the family is STOLEN.
    """
    if not hmac.compare_digest(login.family, family_digest):
        return RefreshVerdict.UNKNOWN
    if hmac.compare_digest(login.refresh, refresh_digest):
        return RefreshVerdict.CURRENT
    is_former = login.former_refresh and hmac.compare_digest(login.former_refresh, refresh_digest)
    if is_former and not login.is_used and 0 <= now - login.refreshed_at < GRACE_S:
        return RefreshVerdict.REPEATED
    return RefreshVerdict.STOLEN


def with_new_tokens(
    login: TokenLogin, access_digest: str, digests: Digests, now: float, *, is_repeated: bool
) -> TokenLogin:
    """Return a log-in with new tokens, by their digests. `access_digest` is that of its access token until now.

    `is_repeated` says that the new tokens replace tokens that got lost on their way to the host.
    """
    updated = replace(login, refresh=digests.refresh, access_until=now + ACCESS_S, is_used=False)
    if is_repeated:  # the tokens that got lost are void; the time of the grace does not begin again
        return updated
    return replace(
        updated,
        refreshed_at=now,
        former_refresh=login.refresh,
        former_access=access_digest,
        former_until=login.access_until,
    )


def intersect_patterns(
    person_patterns: Sequence[str], endpoint_patterns: Sequence[str], server_names: Sequence[str]
) -> tuple[str, ...]:
    """Return patterns of the servers that an endpoint shows and a person may call, by the patterns of both.

    If one side has all servers, these are the patterns of the other side. Else these are names that match both sides:
    the patterns without wildcards, and `server_names`, the names of all servers that there are now.
    """
    if ANY in person_patterns:
        return tuple(dict.fromkeys(endpoint_patterns))
    if ANY in endpoint_patterns:
        return tuple(dict.fromkeys(person_patterns))
    exact_names = [name for name in (*person_patterns, *endpoint_patterns) if not set("*?[") & set(name)]
    return tuple(
        dict.fromkeys(
            name
            for name in (*exact_names, *server_names)
            if matches(person_patterns, name) and matches(endpoint_patterns, name)
        )
    )


def make_token_name(client: str) -> str:
    """Return a name for the token of a program, made of the program's name: small letters, digits and `-`."""
    letters = "".join(char if char.isascii() and char.isalnum() else " " for char in client.lower())
    return "-".join(letters.split())[:40].strip("-") or "host"


def choose_free_name(preferred: str, used_names: Collection[str]) -> str:
    """Return a name that no token has: the wanted name, or the same with the first number that is free (`NAME-2`)."""
    candidates = (preferred if number == 1 else f"{preferred}-{number}" for number in range(1, len(used_names) + 2))
    return next(name for name in candidates if name not in used_names)
