"""Who was shown which open pending request, from a shutdown to the next start, in a record of its own.

A view is no change of its request: it joins the request's history when that is written for another reason.
"""

from dataclasses import dataclass, field

from hubbubd import bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestViews:
    """Who was shown which open request and when: request id, then principal, to seconds since the epoch."""

    at: dict[str, dict[str, bounds.Moment]] = field(default_factory=dict[str, dict[str, bounds.Moment]])
