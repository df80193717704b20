"""Quotas and rate limits per principal, so that no principal uses up what all share (docs/configuration.md)."""

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from hubbubd.config import HubSettings
from hubbubd.errors import ResourceExhausted
from hubbubd.timing.bucket import Bucket

BURST_S = 10.0
"""The burst of a rate limit, in seconds' worth of it."""

MAX_STREAMED = 10_000
"""The most calls that a principal waits for over streams, as RPCs are bounded; several may wait for the same call."""

MAX_BUCKETS = 10_000
"""The most holders whose rate is tracked; the least recently seen is forgotten."""


class Quota:
    """At most `limit` things at a time per holder (principal). A holder without things takes no memory."""

    def __init__(self, things: str, limit: int, *, reason: str) -> None:
        """`things` (plural) is what errors say is counted; `reason` is their reason."""
        self.limit = limit
        self._things = things
        self._reason = reason
        self._counts = Counter[str]()

    def count(self, holder: str) -> int:
        """Return how many things a holder has."""
        return self._counts[holder]

    def require(self, holder: str, others: int = 0) -> None:
        """Raise ResourceExhausted if a holder may not have one more thing.

        `others` further things of the holder count as well, which are being added but are not counted yet.
        """
        if self._counts[holder] + others >= self.limit:
            raise ResourceExhausted(
                f"{holder} has {self.limit} {self._things} already; that is as many as one principal may have",
                reason=self._reason,
                metadata={"limit": str(self.limit), "principal": holder},
            )

    def add(self, holder: str) -> None:
        """Count one more thing of a holder, without checking the limit; see `require`."""
        self._counts[holder] += 1

    def subtract(self, holder: str) -> None:
        """Count one thing less of a holder."""
        self._counts[holder] -= 1
        if self._counts[holder] <= 0:
            del self._counts[holder]

    async def run_and_subtract(self, holder: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run `run`; at its end, also if it fails, subtract the holder's thing that was added for it before."""
        try:
            await run()
        finally:
            self.subtract(holder)

    @contextmanager
    def hold(self, holder: str) -> Generator[None]:
        """Count one more thing of a holder during the block. Raises ResourceExhausted."""
        self.require(holder)
        self.add(holder)
        try:
            yield
        finally:
            self.subtract(holder)


class Rate:
    """A rate limit per holder (token bucket): `per_s` a second, with a burst of BURST_S seconds' worth."""

    def __init__(self, things: str, per_s: float, clock: Callable[[], float], *, reason: str) -> None:
        """`things` (plural) and `reason` are what errors name; `clock` returns monotonic seconds."""
        self._things = things
        self._per_s = per_s
        self._clock = clock
        self._reason = reason
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def set_rate(self, per_s: float) -> None:
        """Change the rate to `per_s` events a second, at once and for all holders."""
        if per_s != self._per_s:
            self._per_s = per_s
            for bucket in self._buckets.values():
                bucket.change(per_s, self._burst, self._clock())

    @property
    def _burst(self) -> float:
        """How many events a holder may have in a burst; at least one."""
        return max(self._per_s * BURST_S, 1.0)

    def charge(self, holder: str) -> None:
        """Count one event of a holder. Raises ResourceExhausted, with the seconds after which to retry.

        Beyond MAX_BUCKETS holders, the one seen least recently is forgotten, and may have a full burst again.
        """
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
    """All quotas and rate limits, by principal, or by address before authentication. `clock` is monotonic seconds."""

    def __init__(self, settings: HubSettings, clock: Callable[[], float]) -> None:
        self.calls = Quota("calls that have not ended", settings.calls_per_principal, reason="TOO_MANY_CALLS")
        self.claims = Quota("claims", settings.claims_per_principal, reason="TOO_MANY_CLAIMS")
        self.streams = Quota("open streams", _stream_limit(settings), reason="TOO_MANY_STREAMS")
        self.call_streams = Quota("open streams of calls", _stream_limit(settings), reason="TOO_MANY_STREAMS")
        self.streamed_calls = Quota("calls on streams", MAX_STREAMED, reason="TOO_MANY_CALLS")
        # Not the same quota as that of the calls, which may all be waiting for these answers.
        self.streamed_answers = Quota("answers on streams", MAX_STREAMED, reason="TOO_MANY_CALLS")
        self.rpcs = Rate("RPCs", settings.rpcs_per_s_per_principal, clock, reason="RPC_RATE_EXCEEDED")
        self.attempts = Rate(
            "refused credentials", settings.refused_credentials_per_s, clock, reason="TOO_MANY_ATTEMPTS"
        )

    def adopt(self, settings: HubSettings) -> None:
        """Apply changed limits; a holder keeps what it has beyond a lower limit."""
        self.calls.limit = settings.calls_per_principal
        self.claims.limit = settings.claims_per_principal
        self.streams.limit = self.call_streams.limit = _stream_limit(settings)
        self.rpcs.set_rate(settings.rpcs_per_s_per_principal)
        self.attempts.set_rate(settings.refused_credentials_per_s)


def _stream_limit(settings: HubSettings) -> int:
    """Return the most streams that a principal may have open; without a setting, as many as there may be watchers."""
    return settings.streams_per_principal or settings.max_watchers
