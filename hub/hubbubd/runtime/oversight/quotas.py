"""What one principal may have of what all share, so that nobody uses it up alone (docs/limits.md)."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from hubbubd.bucket import Bucket
from hubbubd.config import HubSettings
from hubbubd.core.tally import Tally
from hubbubd.errors import ResourceExhausted

BURST_S = 10.0
"""For how many seconds' worth of a rate somebody may be ahead of it."""

MAX_BUCKETS = 10_000
"""Principals or addresses whose rate is known; whoever was seen longest ago is forgotten first."""


class Quota:
    """At most `limit` things at once for each holder. A holder with none takes no memory."""

    def __init__(self, things: str, limit: int, *, reason: str) -> None:
        self.limit = limit
        self._things = things
        self._reason = reason
        self._taken = Tally()

    def held(self, holder: str) -> int:
        """How many a holder has."""
        return self._taken[holder]

    def require(self, holder: str, others: int = 0) -> None:
        """Raises ResourceExhausted when a holder, who is about to take `others`, may not have one more."""
        if self._taken[holder] + others >= self.limit:
            raise ResourceExhausted(
                f"{holder} has {self.limit} {self._things} already; that is as many as one principal may have",
                reason=self._reason,
                metadata={"limit": str(self.limit), "principal": holder},
            )

    def take(self, holder: str) -> None:
        """One more, whether the limit allows it or not: `require` asks."""
        self._taken.add(holder)

    def give_back(self, holder: str) -> None:
        """One less."""
        self._taken.take(holder)

    async def until_ended(self, holder: str, run: Callable[[], Awaitable[None]]) -> None:
        """Runs what one was taken for, and gives it back, however that ends."""
        try:
            await run()
        finally:
            self.give_back(holder)

    @contextmanager
    def hold(self, holder: str) -> Generator[None]:
        """One more for as long as the block lasts. Raises ResourceExhausted."""
        self.require(holder)
        self.take(holder)
        try:
            yield
        finally:
            self.give_back(holder)


class Rate:
    """So many a second for each holder, and `BURST_S` seconds' worth at once."""

    def __init__(self, things: str, per_s: float, clock: Callable[[], float], *, reason: str) -> None:
        self._things = things
        self._per_s = per_s
        self._clock = clock
        self._reason = reason
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def set(self, per_s: float) -> None:
        """Holds from now on, also for those who have used some of it up."""
        if per_s != self._per_s:
            self._per_s = per_s
            for bucket in self._buckets.values():
                bucket.change(per_s, self._burst, self._clock())

    @property
    def _burst(self) -> float:
        return max(self._per_s * BURST_S, 1.0)

    def charge(self, holder: str) -> None:
        """Counts one. Raises ResourceExhausted, with the time after which there is room for one."""
        now = self._clock()
        bucket = self._buckets.get(holder)
        if bucket is None:
            bucket = self._buckets[holder] = Bucket(self._per_s, self._burst, now)
            if len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(holder)
        if wait_s := bucket.take(now):
            raise ResourceExhausted(
                f"too many {self._things} from {holder}: at most {self._per_s:g} a second",
                reason=self._reason,
                metadata={"limit": f"{self._per_s:g}"},
                retry_after_s=wait_s,
            )


class Quotas:
    """What is limited by principal, or by address where nobody is known yet. `clock` says seconds that only grow."""

    def __init__(self, settings: HubSettings, clock: Callable[[], float]) -> None:
        self.calls = Quota("calls that have not ended", settings.calls_per_principal, reason="TOO_MANY_CALLS")
        self.claims = Quota("claims", settings.claims_per_principal, reason="TOO_MANY_CLAIMS")
        self.streams = Quota("open streams", _streams(settings), reason="TOO_MANY_STREAMS")
        self.rpcs = Rate("RPCs", settings.rpcs_per_s_per_principal, clock, reason="RPC_RATE_EXCEEDED")
        self.attempts = Rate(
            "refused credentials", settings.refused_credentials_per_s, clock, reason="TOO_MANY_ATTEMPTS"
        )

    def adopt(self, settings: HubSettings) -> None:
        """Keeps these limits from now on; whoever has more already keeps what is there."""
        self.calls.limit = settings.calls_per_principal
        self.claims.limit = settings.claims_per_principal
        self.streams.limit = _streams(settings)
        self.rpcs.set(settings.rpcs_per_s_per_principal)
        self.attempts.set(settings.refused_credentials_per_s)


def _streams(settings: HubSettings) -> int:
    return settings.streams_per_principal or settings.max_watchers
