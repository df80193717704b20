"""How long to wait before the next attempt."""

from collections.abc import Sequence

from hubbubd import bounds

JITTER = 0.2
"""A delay is stretched by up to this share, so that many servers that failed together do not return together."""


LONGEST_ASKED_S = 3600.0
"""How long a server may ask the hub to wait: it may slow the hub down, but not send it away for good."""


def asked_s(retry_after_s: float | None) -> float:
    """Seconds that a server's own word, such as `Retry-After`, puts off the next attempt; 0 when it gave none."""
    return bounds.seconds(retry_after_s, high=LONGEST_ASKED_S) or 0.0


def delay_s(attempt: int, steps: Sequence[float], ceiling_s: float, jitter: float = 0.0) -> float:
    """Seconds before the retry that follows the failed attempt number `attempt` (from 1).

    The configured steps come first; after the last one the delay doubles up to `ceiling_s`, which also bounds
    the steps. `jitter` is a random number from 0 to 1.
    """
    # The exponent is bounded: a server that has been away for months must not overflow a float.
    doubled = min(max(attempt - len(steps), 0), 64)
    base = steps[min(max(attempt, 1), len(steps)) - 1] * 2.0**doubled
    return min(base, ceiling_s) * (1 + JITTER * jitter)
