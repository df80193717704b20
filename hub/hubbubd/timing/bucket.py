"""A token bucket: a rate limit that allows bursts."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Bucket:
    """A bucket filled with `rate` tokens per second, up to `burst`; it has `level` tokens at the time `filled_at`.

    Times are seconds of a monotonic clock.
    """

    rate: float
    burst: float
    filled_at: float
    level: float = field(init=False)

    def __post_init__(self) -> None:
        self.level = self.burst

    def take(self, now: float) -> float:
        """Take one token and return 0; if there is none, return the seconds until there is one, and take nothing."""
        self._fill(now)
        if self.level < 1:
            return (1 - self.level) / self.rate
        self.level -= 1
        return 0.0

    def take_into_debt(self, now: float, amount: float = 1) -> float:
        """Take `amount` tokens, below zero if need be, and return the seconds until the level is zero again."""
        self._fill(now)
        self.level -= amount
        return max(-self.level / self.rate, 0.0)

    def change(self, rate: float, burst: float, now: float) -> None:
        """Change rate and burst; the level stays, as far as it fits."""
        self._fill(now)
        self.rate, self.burst, self.level = rate, burst, min(self.level, burst)

    def is_full(self, now: float) -> bool:
        """Return whether the bucket is full: as good as new, so that its owner can forget it."""
        self._fill(now)
        return self.level >= self.burst

    def _fill(self, now: float) -> None:
        """Add the tokens of the time since the last fill."""
        self.level = min(self.burst, self.level + max(now - self.filled_at, 0.0) * self.rate)
        self.filled_at = max(self.filled_at, now)
