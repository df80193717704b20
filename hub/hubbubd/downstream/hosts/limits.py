"""What hosts may have at a time."""

from dataclasses import dataclass
from typing import Final, Self

from hubbubd.config import HubSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """Bounds on the sessions of hosts; docs/configuration.md has the settings."""

    sessions_per_principal: int = 100
    """With one more, the session that was idle for the longest time ends."""

    requests_per_session: int = 100
    """Requests of one session that are served at a time."""

    streams_per_principal: int = 100
    """Streams of notifications that belong to no request, in sessions and by `subscriptions/listen`."""

    idle_s: float = 86_400.0
    """Seconds after which a session ends that has no request and no stream open."""

    replay_events: int = 1000
    replay_bytes: int = 4 * 1024 * 1024
    """How many events, of how many bytes together, one session stores for broken streams."""

    @classmethod
    def from_settings(cls, settings: HubSettings) -> Self:
        """Return the limits that the settings of the hub state."""
        return cls(
            sessions_per_principal=settings.mcp_sessions_per_principal,
            requests_per_session=settings.mcp_requests_per_session,
            streams_per_principal=settings.mcp_streams_per_principal,
            idle_s=settings.mcp_session_idle_s,
            replay_events=settings.mcp_events_per_session,
            replay_bytes=settings.mcp_event_bytes_per_session,
        )


DEFAULTS: Final = HostLimits()
