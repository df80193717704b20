"""What hosts may have at a time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on the sessions of hosts; docs/limits.md has the settings."""

    sessions_per_principal: int = 100
    """One more ends the session that was idle for the longest time."""

    requests_per_session: int = 100
    """Requests of one session that are served at a time."""

    streams_per_principal: int = 100
    """Streams of what belongs to no request, in sessions and by `subscriptions/listen`."""

    idle_s: float = 1800.0
    """Seconds after which a session ends that has no request and no stream open."""

    kept_events: int = 1000
    kept_bytes: int = 4 * 1024 * 1024
    """What is kept in one session for streams that broke."""
