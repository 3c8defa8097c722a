"""What every provider needs and none writes itself: refusals, deadlines, retries, measurements."""

from paddock.adapters.providers.layers.bound import Bound
from paddock.adapters.providers.layers.guard import Guard
from paddock.adapters.providers.layers.hold import Hold
from paddock.adapters.providers.layers.layered import Call, Layer, Layered, Operation
from paddock.adapters.providers.layers.measure import Measure, Observer
from paddock.adapters.providers.layers.retry import Backoff, Retry
from paddock.adapters.providers.layers.trace import Trace
from paddock.ports.clock import Clock
from paddock.ports.provider import Provider

__all__ = [
    "Backoff",
    "Bound",
    "Call",
    "Guard",
    "Hold",
    "Layer",
    "Layered",
    "Measure",
    "Observer",
    "Operation",
    "Retry",
    "Trace",
    "standard_layers",
]


def standard_layers(provider: Provider, *, clock: Clock, observer: Observer) -> Provider:
    """Guard, then retry, then measure, then bound, then the provider itself.

    Guard is outermost, so that what can never work costs nothing, is not repeated and does not
    count as a fault of the provider. Retry comes next and sees single attempts. Measure is inside
    of it, so that a provider that only works the second time shows as what it is. Bound is
    innermost: each attempt has a deadline of its own, and one that hangs is ended, counted as
    timed out and tried again.
    """
    bounded = Layered(provider, Bound(provider=provider))
    measured = Layered(bounded, Measure(observer, clock))
    retried = Layered(measured, Retry(clock))
    return Layered(retried, Guard(provider, clock))
