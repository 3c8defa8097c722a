"""What Prometheus is told: requests, provider calls, sandboxes, events, and the loop's lag."""

import asyncio
import time
from collections import Counter as Tally
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from paddock.domain.event import Event, EventKind
from paddock.domain.sandbox import SandboxState
from paddock.ports.store import SandboxFilter
from paddock.services.alongside import alongside
from paddock.services.audit_guard import ChainState
from paddock.services.changes import Changes
from paddock.services.pools import PoolState

_OURS = frozenset[str](EventKind)
_LOOK_EVERY_S = 0.5
_COUNTED_FOR_S = 10.0
_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The series of one server; two in one process do not mix."""

    def __init__(self, count: Callable[[], Awaitable[Mapping[str, int]]]) -> None:
        self._count = count
        self._counted_at = float("-inf")
        self._registry = CollectorRegistry()
        self._requests = self._counter(
            "http_requests", "Requests answered.", "method", "route", "status"
        )
        self._request_seconds = self._histogram(
            "http_request_seconds", "How long they took, streams to their end.", "method", "route"
        )
        self._calls = self._counter(
            "provider_calls", "Calls of providers.", "provider", "operation", "outcome"
        )
        self._call_seconds = self._histogram(
            "provider_call_seconds", "How long providers took.", "provider", "operation"
        )
        self._sandboxes = self._gauge("sandboxes", "Sandboxes that are not deleted.", "state")
        self._events = self._counter("events_written", "Events of this process.", "kind")
        self._lag = self._gauge(
            "event_loop_lag_seconds", "How late the loop came back at worst, since last asked."
        )
        self._worst_lag = 0.0
        self.pools: Callable[[], Iterable[PoolState]] = tuple
        self._pools = {
            name: self._gauge(f"pool_{name}", says, "provider", "template")
            for name, says in (
                ("wanted", "Sandboxes that shall wait ready."),
                ("kept", "Those that do, with memory as short as it is."),
                ("ready", "Those that wait ready."),
            )
        }

        self.audit: Callable[[], ChainState | None] = lambda: None
        self._audit_breaks = self._gauge(
            "audit_breaks", "Places where the audit log is not as it was written."
        )
        self._audit_entries = self._gauge("audit_entries", "Entries of the audit log.")

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(f"paddock_{name}", says, labels, registry=self._registry)

    def _gauge(self, name: str, says: str, *labels: str) -> Gauge:
        return Gauge(f"paddock_{name}", says, labels, registry=self._registry)

    def _histogram(self, name: str, says: str, *labels: str) -> Histogram:
        registry = self._registry
        return Histogram(f"paddock_{name}", says, labels, buckets=_BUCKETS, registry=registry)

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(method, route).observe(seconds)

    def observe_call(self, provider: str, operation: str, seconds: float, outcome: str) -> None:
        self._calls.labels(provider, operation, outcome).inc()
        self._call_seconds.labels(provider, operation).observe(seconds)

    def hear(self, events: Sequence[Event]) -> None:
        for event in events:
            ours = event.kind in _OURS
            # Others' kinds are as many as they like, and every label costs memory for ever.
            self._events.labels(event.kind if ours else "custom").inc()

    async def text(self) -> bytes:
        """All series as Prometheus reads them."""
        if time.monotonic() - self._counted_at >= _COUNTED_FOR_S:
            found = await self._count()
            for state in SandboxState:
                self._sandboxes.labels(state).set(found.get(state, 0))
            self._counted_at = time.monotonic()
        for pool in self.pools():
            found_of = {"wanted": pool.size, "kept": pool.kept, "ready": pool.ready}
            for name, count in found_of.items():
                self._pools[name].labels(pool.provider, pool.template).set(count)
        if audit := self.audit():
            self._audit_breaks.set(audit.breaks)
            self._audit_entries.set(audit.head.seq)
        self._lag.set(self._worst_lag)
        self._worst_lag = 0.0
        return generate_latest(self._registry)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """While this is open, the loop's lag is measured."""
        async with alongside(self._watch(), "event loop lag"):
            yield

    async def _watch(self) -> None:
        while True:
            due = time.monotonic() + _LOOK_EVERY_S
            await asyncio.sleep(_LOOK_EVERY_S)
            self._worst_lag = max(self._worst_lag, time.monotonic() - due)


async def count_states(changes: Changes) -> Mapping[str, int]:
    """How many sandboxes there are in each state, of all teams."""
    found: Tally[str] = Tally()
    async for sandbox in changes.each(SandboxFilter()):
        found[sandbox.state] += 1
    return found
