"""Taking events in from agents and programs: stored first, acknowledged then, each of them once."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from paddock.domain.broker.masking import masked
from paddock.domain.errors import InvalidRequest, LimitExceeded
from paddock.domain.event import Event, check_custom_kind
from paddock.domain.intake import (
    LAST_SEQ,
    MOST_AT_ONCE,
    Report,
    SourceState,
    check_source,
    check_sources,
    taken,
)
from paddock.domain.records import SandboxRecord, app_in
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services.changes import Changes, missing
from paddock.services.quotas import append_within, check_event_room

Pace = Callable[[str, int], float]
"""Of a sandbox and so many events: 0 when they may pass, otherwise the seconds to wait."""


Inside = Callable[[SandboxRecord], Awaitable[Mapping[str, str]]]
"""Values that programs in a sandbox can read, and what is kept in their place."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one reported event."""

    source: str
    seq: int
    event: int | None
    """Its number in the log; None when it was stored before."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """All of this is stored, and need not be sent again."""

    receipts: Sequence[Receipt]
    sources: Sequence[SourceState]


class Intake:
    """The events of others. What they are about is said by the address, not by the content."""

    def __init__(
        self, store: Store, clock: Clock, changes: Changes, pace: Pace, *, inside: Inside
    ) -> None:
        self._store = store
        self._clock = clock
        self._changes = changes
        self._pace = pace
        self._inside = inside

    async def accept(
        self, principal: Principal, name: str, reports: Sequence[Report]
    ) -> Acknowledgement:
        """Returns when all are stored; when it raises, none is."""
        principal.require(Scope.EVENTS_WRITE)
        sandbox = await self._changes.find(principal.team_id, name)
        _check(reports)
        if (wait_s := self._pace(sandbox.id, len(reports))) > 0:
            raise LimitExceeded(
                f"sandbox {sandbox.name} tells of more events than are taken",
                remediation=f"wait {wait_s:.1f} s and send them again; nothing of them was stored",
                retry_after_s=wait_s,
            )
        if values := await self._inside(sandbox):
            reports = [replace(each, data=masked(each.data, values)) for each in reports]
        now = self._clock.wall()

        def write(tx: Transaction) -> Acknowledgement:
            if tx.sandboxes.get(principal.team_id, sandbox.id) is None:
                raise missing(name)
            check_event_room(tx, sandbox.team_id, sandbox.id, f"sandbox {sandbox.name}")
            states, new = _sorted_out(tx, sandbox.id, reports)
            events = [_event(principal, sandbox, each, now) for each in new]
            numbers = iter(append_within(tx, events))
            for state in states:
                tx.sources.put(replace(state, changed_at=now))
            stored = {id(each): next(numbers).seq for each in new}
            receipts = [Receipt(r.source, r.seq, stored.get(id(r))) for r in reports]
            return Acknowledgement(receipts, states)

        return await self._store.write(write)

    async def sources(self, principal: Principal, name: str) -> Sequence[SourceState]:
        """Who has told of events, and what of it is missing."""
        principal.require(Scope.EVENTS_READ)
        sandbox = await self._changes.find(principal.team_id, name)
        return await self._store.read(lambda tx: tx.sources.list(sandbox.id))


def _check(reports: Sequence[Report]) -> None:
    if not 1 <= len(reports) <= MOST_AT_ONCE:
        raise InvalidRequest(
            f"there are {len(reports)} events in one request",
            remediation=f"send between 1 and {MOST_AT_ONCE}",
        )
    for report in reports:
        check_source(report.source)
        check_custom_kind(report.kind)
        if not 1 <= report.seq <= LAST_SEQ:
            raise InvalidRequest(
                f"{report.seq} is no number of an event of {report.source}",
                remediation=f"count from 1 to {LAST_SEQ}",
            )


def _sorted_out(
    tx: Transaction, sandbox_id: str, reports: Sequence[Report]
) -> tuple[Sequence[SourceState], Sequence[Report]]:
    """How far each source is now, and which of the reports are new."""
    states: dict[str, SourceState] = {}
    new, new_sources = [], 0
    for report in reports:
        state = states.get(report.source) or tx.sources.get(sandbox_id, report.source)
        if state is None:
            new_sources += 1
            state = SourceState(sandbox_id, report.source)
        after = taken(state, report.seq)
        if after is not None:
            new.append(report)
        states[report.source] = after or state
    if new_sources:
        check_sources(len(tx.sources.list(sandbox_id)) + new_sources)
    return list(states.values()), new


def _event(principal: Principal, sandbox: SandboxRecord, report: Report, now: float) -> Event:
    data: dict[str, object] = {"source": report.source, "n": report.seq, "data": dict(report.data)}
    data |= app_in(sandbox)
    if report.at is not None:
        data["at"] = report.at
    return Event(principal.team_id, report.kind, sandbox.id, now, data, principal.actor)
