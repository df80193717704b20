"""Who was shown which open pending request, as a record of its own: it is written with the next change of each."""

from dataclasses import dataclass, field

from hubbubd import bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestViews:
    """Who was shown which open request and when: request id, then principal, to seconds since the epoch."""

    at: dict[str, dict[str, bounds.Moment]] = field(default_factory=dict[str, dict[str, bounds.Moment]])
