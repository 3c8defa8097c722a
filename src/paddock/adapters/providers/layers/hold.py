"""A provider that takes no more requests is not asked again until it does."""

import math
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from typing import TypeVar

from paddock.adapters.providers.layers.layered import Call, Operation
from paddock.domain.errors import LimitExceeded
from paddock.ports.clock import Clock
from paddock.ports.provider import Ref

T = TypeVar("T")

# What visitors ask for, as often as they like.
HELD: Set[Operation] = frozenset({Operation.GUEST, Operation.ENDPOINT})
_USUAL_S = 5.0
_LONGEST_S = 3600.0
_MOST = 1000


@dataclass(frozen=True, slots=True)
class _Limit:
    until: float
    error: LimitExceeded
    is_timed: bool


class Hold:
    """Answers in the provider's place as long as a limit lasts that it told.

    A limit with a time is one on requests, and holds for the operation whatever sandbox it is
    about. One without is the sandbox's own as far as anybody knows: then the others go on, or
    one team's visitors could keep all out.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limits: dict[tuple[Operation, Ref | None], _Limit] = {}

    async def around(self, call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        if call.operation not in HELD:
            return await proceed()
        for about in (None, call.arguments["ref"]):
            limit = self._limits.get((call.operation, about))
            if limit is not None and limit.until > self._clock.now():
                raise self._told(call, limit)
        try:
            return await proceed()
        except LimitExceeded as error:
            raise self._told(call, self._noted(call, error)) from error

    def _noted(self, call: Call, error: LimitExceeded) -> _Limit:
        given = error.retry_after_s
        is_timed = given is not None and math.isfinite(given) and given > 0
        lasts_s = min(given, _LONGEST_S) if is_timed and given is not None else _USUAL_S
        now = self._clock.now()
        if len(self._limits) >= _MOST:
            self._limits = {key: each for key, each in self._limits.items() if each.until > now}
        if len(self._limits) >= _MOST:
            self._limits.clear()
        limit = _Limit(now + lasts_s, error, is_timed)
        self._limits[call.operation, None if is_timed else call.arguments["ref"]] = limit
        return limit

    def _told(self, call: Call, limit: _Limit) -> LimitExceeded:
        """As the provider said it; when to try again only where it has said that, too."""
        error = limit.error
        if not limit.is_timed:
            return type(error)(error.message, remediation=error.remediation)
        left_s = max(0.0, limit.until - self._clock.now())
        return type(error)(
            f"provider {call.provider} allows no more requests now: {error.message}",
            remediation=f"try again in {math.ceil(left_s)} s",
            retry_after_s=left_s,
        )
