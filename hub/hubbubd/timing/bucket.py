"""A token bucket: a rate limit that allows bursts."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Bucket:
    """A bucket filled with `rate` tokens per second, up to `burst`. Times are seconds of a monotonic clock."""

    rate: float
    burst: float
    at: float
    level: float = field(init=False)

    def __post_init__(self) -> None:
        self.level = self.burst

    def take(self, now: float) -> float:
        """Take one token and return 0; without one, take none and return the seconds until there is one."""
        self._fill(now)
        if self.level < 1:
            return (1 - self.level) / self.rate
        self.level -= 1
        return 0.0

    def owe(self, now: float, amount: float = 1) -> float:
        """Take `amount` tokens even into debt, and return the seconds until the debt is paid."""
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
        self.level = min(self.burst, self.level + max(now - self.at, 0.0) * self.rate)
        self.at = max(self.at, now)
