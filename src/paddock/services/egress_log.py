"""What sandboxes reached and what they were refused, as events: summed up, each once."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from paddock.domain.audit import AuditEntry
from paddock.domain.broker.masking import NameMask
from paddock.domain.errors import PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.records import SandboxRecord, app_in
from paddock.ports.clock import Clock
from paddock.ports.egress import CredentialUse, Flow, FlowBatch, FlowSource
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.services.egress import Egress
from paddock.services.intake import Inside
from paddock.services.name_masks import name_mask
from paddock.services.quotas import append_within
from paddock.services.spending import note_use

_log = logging.getLogger(__name__)
_TAKEN = "egress-taken."
_MOST_GATEWAYS = 8
_MOST_AT_ONCE = 1000
"""Batches of one gateway before another has its turn: more than one that is full has."""
_LEAST_TO_SETTLE = 3
"""The batch that another caller holds, that of a gateway that is retired, and the newest."""
EVERY_S = 1.0
HIDDEN = "(hidden)"
"""In place of a host where nobody can tell whether there is a value in its name."""
WHY_HIDDEN = "what the gateway said of it is hidden like its host"


@dataclass(frozen=True, slots=True)
class EgressLog:
    """Takes what gateways saw, batch by batch."""

    store: Store
    clock: Clock
    egress: Egress
    sources: Mapping[str, FlowSource]
    inside: Inside

    async def run(self) -> None:
        """Until cancelled. What has changed in shipped presets is in force first."""
        try:
            await self.egress.apply()
        except PaddockError as error:
            _log.warning("egress policies not applied", extra={"why": error.message})
        while self.sources:
            await self.clock.sleep(EVERY_S)
            for name in self.sources:
                try:
                    await self.take(name)
                except PaddockError as error:
                    _log.warning("egress not recorded", extra={"of": name, "why": error.message})
        await asyncio.Event().wait()

    async def take(self, name: str, *, least: int = 1) -> int:
        """Store what a gateway saw, batch by batch, and return the number of events.

        Stops at the last batch, after at least `least` of them."""
        count = 0
        masks: dict[str, NameMask | None] = {}
        for number in range(1, _MOST_AT_ONCE + 1):
            if (batch := await self._next(name)) is None:
                break
            count += await self._keep(name, await self._masked(batch, masks))
            if number >= least and not batch.more:
                break
        return count

    async def settle(self, name: str) -> None:
        """Store all model use that a gateway has counted until now."""
        if name in self.sources:
            # Another caller may hold a batch that is older than this call: the gateway repeats
            # that one first, and only the next has the newest counts.
            await self.take(name, least=_LEAST_TO_SETTLE)

    async def _masked(self, batch: FlowBatch, masks: dict[str, NameMask | None]) -> FlowBatch:
        """A program chooses the names that it asks for, and may put into one what it was lent.

        What is known of a sandbox is decrypted, and holds for the batches that follow at once."""
        seen: list[Flow | CredentialUse] = [*batch.flows, *batch.uses]
        for each in seen:
            if each.sandbox not in masks and not _is_of_rule(each):
                masks[each.sandbox] = await self._mask(each.sandbox)
        flows = tuple(_without_values(each, masks) for each in batch.flows)
        uses = tuple(_without_values(each, masks) for each in batch.uses)
        return replace(batch, flows=flows, uses=uses)

    async def _mask(self, sandbox_id: str) -> NameMask | None:
        """None where it cannot be known now: others are not kept waiting for that."""
        sandbox = await self.store.read(lambda tx: tx.sandboxes.get(ANY_TEAM, sandbox_id))
        if sandbox is None:
            return NameMask({})  # nothing is kept of it
        try:
            return await name_mask(self.store, self.inside, sandbox)
        except PaddockError as error:
            _log.warning("hosts not told", extra={"id": sandbox_id, "why": error.message})
            return None

    async def _keep(self, name: str, batch: FlowBatch) -> int:
        def write(tx: Transaction) -> int:
            # Looked at in here: another server may have been told the same, and have stored it.
            taken = _taken(tx, name)
            if batch.number <= taken.pop(batch.gateway, 0):
                return 0
            events = [
                event for flow in batch.flows if (event := _event(tx, flow, batch)) is not None
            ]
            count = len(events)
            events += [event for use in batch.uses if (event := _note_use(tx, use)) is not None]
            for used in batch.models:
                if (sandbox := tx.sandboxes.get(ANY_TEAM, used.sandbox)) is not None:
                    events.append(note_use(tx, sandbox, used))
            append_within(tx, events)
            taken[batch.gateway] = batch.number
            tx.values.put(_TAKEN + name, list(taken.items())[-_MOST_GATEWAYS:])
            return count

        return await self.store.write(write)

    async def _next(self, name: str) -> FlowBatch | None:
        """What is not on record yet, as far as one can tell before it is written."""
        taken = await self.store.read(lambda tx: _taken(tx, name))
        return await self.sources[name].drain(taken)


def _taken(tx: Transaction, name: str) -> dict[str, int]:
    """The last number that is on record of each gateway, the latest last.

    One that is retired and its successor may both be there for a while.
    """
    stored = tx.values.get(_TAKEN + name)
    return dict(stored) if isinstance(stored, list) else {}


_Seen = TypeVar("_Seen", Flow, CredentialUse)


def _is_of_rule(seen: Flow | CredentialUse) -> bool:
    """Somebody has written the very name into a rule that allows it."""
    return seen.rule.partition(":")[0] == seen.host


def _without_values(seen: _Seen, masks: Mapping[str, NameMask | None]) -> _Seen:
    if _is_of_rule(seen):
        return seen
    mask = masks[seen.sandbox]
    if mask is None and isinstance(seen, Flow) and seen.why:  # which names it as well
        seen = replace(seen, why=WHY_HIDDEN)
    if mask is None:
        return replace(seen, host=HIDDEN)
    if isinstance(seen, Flow):
        seen = replace(seen, why=mask.text(seen.why))
    return replace(seen, host=mask.text(seen.host))


def _event(tx: Transaction, flow: Flow, batch: FlowBatch) -> Event | None:
    sandbox = tx.sandboxes.get(ANY_TEAM, flow.sandbox)
    if sandbox is None:
        return None  # forgotten since, or one that nobody has claimed yet
    kind = EventKind.EGRESS_ALLOWED if flow.allowed else EventKind.EGRESS_DENIED
    return Event(sandbox.team_id, kind, sandbox.id, flow.last_at, _data(flow, sandbox, batch))


def _data(flow: Flow, sandbox: SandboxRecord, batch: FlowBatch) -> dict[str, object]:
    told: dict[str, object] = {
        "name": sandbox.name,
        "host": flow.host,
        "port": flow.port or None,
        "rule": flow.rule or None,
        "of": flow.source or None,
        "connections": flow.connections,
        "bytes_up": flow.bytes_up,
        "bytes_down": flow.bytes_down,
        "first_at": flow.first_at,
        "last_at": flow.last_at,
        **app_in(sandbox),
    }
    if flow.why:
        told["why"] = flow.why
    if batch.dropped:
        told["dropped"] = batch.dropped
    return told


def _note_use(tx: Transaction, use: CredentialUse) -> Event | None:
    """An act of who had the sandbox made, so it is in the audit log too."""
    sandbox = tx.sandboxes.get(ANY_TEAM, use.sandbox)
    if sandbox is None:
        return None
    detail: dict[str, object] = {
        "name": sandbox.name,
        "secret": use.secret,
        "host": use.host,
        "port": use.port,
        "way": use.way,
        "rule": use.rule,
        "count": use.count,
        "first_at": use.first_at,
        "last_at": use.last_at,
        **app_in(sandbox),
    }
    if sandbox.task:
        detail["task"] = sandbox.task
    if use.lacks:
        detail["lacks"] = use.lacks
    team, kind = sandbox.team_id, EventKind.SECRET_USED
    actor = f"sandbox {sandbox.id}"
    tx.audit.append([AuditEntry(team, actor, kind, sandbox.id, use.last_at, detail)])
    return Event(team, kind, sandbox.id, use.last_at, detail)
