"""One person's yes to a call, as its pending request and the call record it."""

from dataclasses import dataclass

from hubbubd import bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """An approval by one principal. `digest` is that of the arguments that it approved.

    `groups` are the identity provider's names of its roles then, and `answer_id` its idempotency key. `remember_s` is 0
    for this call only. `suggestions` are the indices of those it takes of what the caller's host suggests to allow.
    """

    by: str
    at: bounds.Moment
    digest: str
    groups: tuple[str, ...] = ()
    comment: str = ""
    remember_s: bounds.Span = 0.0
    same_arguments: bool = False
    suggestions: tuple[bounds.Count, ...] = ()
    answer_id: str | None = None
