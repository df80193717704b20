"""Exponential backoff with jitter, and `Retry-After` within bounds. Called for reconnects and catalog fetches."""

from collections.abc import Sequence

from hubbubd import bounds

JITTER = 0.2
"""A delay is stretched by up to this share, so that servers that failed together do not reconnect together."""


MAX_RETRY_AFTER_S = 3600.0
"""Seconds by which a server's `Retry-After` may delay an attempt at most: it must not stop the hub for good."""


def clamp_retry_after_s(retry_after_s: float | None) -> float:
    """Return the seconds that a server asked to wait (`Retry-After`), clamped; 0 when it did not ask."""
    return bounds.clamp_seconds(retry_after_s, high=MAX_RETRY_AFTER_S) or 0.0


def delay_s(attempt: int, steps: Sequence[float], ceiling_s: float, jitter: float = 0.0) -> float:
    """Return the seconds before the retry that follows failed attempt number `attempt` (from 1).

    The configured steps come first; after the last one the delay doubles up to `ceiling_s`, which also bounds the
    steps. `jitter` is a random number from 0 to 1.
    """
    # The exponent is bounded: a server that has been away for months must not overflow a float.
    doubled = min(max(attempt - len(steps), 0), 64)
    base = steps[min(max(attempt, 1), len(steps)) - 1] * 2.0**doubled
    return min(base, ceiling_s) * (1 + JITTER * jitter)
