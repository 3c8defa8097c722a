"""Trying again: only what may help, only what does no harm twice, and not for ever."""

import random
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from typing import TypeVar

from paddock.adapters.providers.layers.layered import Call, Operation
from paddock.domain.errors import PaddockError, QuotaExceeded
from paddock.ports.clock import Clock

T = TypeVar("T")

_RANDOM = random.SystemRandom()

# Doing any of these twice is doing it once: by a key, because it only asks, or because it names the
# state to be in. The conformance suite holds every provider to it. check() is left out because it
# raises nothing, aclose() because it promises nothing of the kind.
IDEMPOTENT: Set[Operation] = frozenset(Operation) - {Operation.CHECK, Operation.ACLOSE}


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits of up to `first_s`, then doubling to at most `longest_s`."""

    attempts: int = 4
    first_s: float = 0.2
    longest_s: float = 5.0
    total_s: float = 30.0
    """No further attempt begins once this much time has passed since the first."""

    def wait(self, failures: int, share: float) -> float:
        """Full jitter: a random share of the step, so that not all callers come back at once."""
        return min(self.longest_s, self.first_s * 2.0 ** (failures - 1)) * share


class Retry:
    """Repeats an idempotent call while its error is of a retryable class.

    Not where a quota is used up: that takes more than seconds, and who can wait knows better.
    """

    def __init__(
        self,
        clock: Clock,
        backoff: Backoff | None = None,
        *,
        idempotent: Set[Operation] = IDEMPOTENT,
        jitter: Callable[[], float] = _RANDOM.random,
    ) -> None:
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._idempotent = idempotent
        self._jitter = jitter

    async def around(self, call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        if call.operation not in self._idempotent:
            return await proceed()
        give_up_at = self._clock.now() + self._backoff.total_s
        for failures in range(1, self._backoff.attempts):
            try:
                return await proceed()
            except PaddockError as error:
                wait = self._backoff.wait(failures, self._jitter())
                if not _may_pass(error) or self._clock.now() + wait > give_up_at:
                    raise
            await self._clock.sleep(wait)
        return await proceed()


def _may_pass(error: PaddockError) -> bool:
    return error.retryable and not isinstance(error, QuotaExceeded)
