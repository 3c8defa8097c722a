"""How often a token may ask."""

import time
from collections.abc import Callable
from dataclasses import dataclass

_MOST_KNOWN = 10_000


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class RateLimit:
    """A bucket per token, filled at `per_second` up to `burst`."""

    def __init__(
        self, per_second: float, burst: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._now = now
        self._buckets: dict[str, _Bucket] = {}

    def change(self, per_second: float | None = None, burst: float | None = None) -> None:
        """For everyone, from the next request on."""
        self._per_second = self._per_second if per_second is None else per_second
        self._burst = self._burst if burst is None else burst

    def take(self, who: str, amount: float = 1) -> float:
        """0 when so much may pass, otherwise the seconds until it may."""
        now = self._now()
        bucket = self._buckets.get(who)
        if bucket is None:
            if len(self._buckets) >= _MOST_KNOWN:
                self._forget_full(now)
            bucket = self._buckets[who] = _Bucket(self._burst, now)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._per_second)
        bucket.at = now
        amount = min(amount, self._burst)  # what is larger than the bucket waits until it is full
        if bucket.left >= amount:
            bucket.left -= amount
            return 0.0
        return (amount - bucket.left) / self._per_second

    def _forget_full(self, now: float) -> None:
        """A bucket that has filled up again says nothing."""
        full_after = self._burst / self._per_second
        self._buckets = {
            who: bucket for who, bucket in self._buckets.items() if now - bucket.at < full_after
        }
