"""A token bucket: a rate that may be exceeded for a while, as long as it is kept on average."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Bucket:
    """`rate` a second, and up to `burst` at once. Times are seconds of one clock that only grows."""

    rate: float
    burst: float
    at: float
    level: float = field(init=False)

    def __post_init__(self) -> None:
        self.level = self.burst

    def take(self, now: float) -> float:
        """Takes one, and returns 0; or takes none, and returns in how many seconds there will be one."""
        self._fill(now)
        if self.level < 1:
            return (1 - self.level) / self.rate
        self.level -= 1
        return 0.0

    def owe(self, now: float, amount: float = 1) -> float:
        """Takes so much whether it is there or not, and returns in how many seconds nothing will be owed."""
        self._fill(now)
        self.level -= amount
        return max(-self.level / self.rate, 0.0)

    def change(self, rate: float, burst: float, now: float) -> None:
        """Fills at another rate from now on. What is in it stays, as far as it still fits."""
        self._fill(now)
        self.rate, self.burst, self.level = rate, burst, min(self.level, burst)

    def is_full(self, now: float) -> bool:
        """Whether it is as good as new."""
        self._fill(now)
        return self.level >= self.burst

    def _fill(self, now: float) -> None:
        self.level = min(self.burst, self.level + max(now - self.at, 0.0) * self.rate)
        self.at = max(self.at, now)
