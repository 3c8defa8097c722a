"""How long each call took and how it ended, told to whoever wants to know."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from paddock.adapters.providers.layers.layered import Call
from paddock.domain.errors import PaddockError
from paddock.ports.clock import Clock

T = TypeVar("T")

log = logging.getLogger(__name__)

OK = "ok"
CANCELLED = "cancelled"


class Observer(Protocol):
    """Told once per call. The outcome is `ok`, `cancelled` or the code of the error."""

    def __call__(self, provider: str, operation: str, seconds: float, outcome: str) -> None: ...


class Measure:
    """Tells an observer about every call. Neither the call nor its result is ever changed by it."""

    def __init__(self, observer: Observer, clock: Clock) -> None:
        self._observer = observer
        self._clock = clock

    async def around(self, call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        started = self._clock.now()
        outcome = PaddockError.code
        try:
            result = await proceed()
            outcome = OK
        except asyncio.CancelledError:
            outcome = CANCELLED
            raise
        except PaddockError as error:
            outcome = error.code
            raise
        finally:
            self._tell(call, self._clock.now() - started, outcome)
        return result

    def _tell(self, call: Call, seconds: float, outcome: str) -> None:
        try:
            self._observer(call.provider, call.operation.value, seconds, outcome)
        except Exception:
            # A broken gauge must not stop the machine.
            log.exception("observer failed for %s of %s", call.operation, call.provider)
