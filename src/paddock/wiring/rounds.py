"""What goes on in the background, made of the parts that all services are made of."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from paddock.adapters.host_memory import host_memory
from paddock.interfaces.api.metrics import Metrics
from paddock.ports.clock import SystemClock
from paddock.ports.store import Store
from paddock.services.activity import Activity
from paddock.services.audit_guard import AuditGuard
from paddock.services.changes import Changes
from paddock.services.egress_asks import EgressAsks
from paddock.services.egress_log import EgressLog
from paddock.services.guests import Guests
from paddock.services.housekeeping import Housekeeping
from paddock.services.keeping import AutomaticSnapshots
from paddock.services.making import Making
from paddock.services.pools import Pools
from paddock.services.pressure import Pressure
from paddock.services.providers import Providers
from paddock.services.reaper import Reaper
from paddock.services.reconciler import Reconciler
from paddock.services.sandboxes import Sandboxes
from paddock.services.snapshots import Snapshots
from paddock.services.task_expiry import MessageExpiry
from paddock.services.task_waking import TaskWaking
from paddock.services.task_workers import TaskWorkers
from paddock.services.volumes import Volumes
from paddock.wiring.tasks import TaskParts

_ON_THIS_HOST = frozenset({"local", "docker", "reference"})


@dataclass(frozen=True, slots=True)
class Rounds:
    """Each goes on until it is cancelled."""

    reaper: Reaper
    reconciler: Reconciler
    pressure: Pressure
    housekeeping: Housekeeping
    egress_log: EgressLog
    egress_asks: EgressAsks
    task_workers: TaskWorkers
    task_waking: TaskWaking
    message_expiry: MessageExpiry
    audit_guard: AuditGuard

    def begin(self, group: asyncio.TaskGroup) -> None:
        for name in self.__slots__:
            group.create_task(getattr(self, name).run(), name=name)


class Parts(Protocol):
    """What they are made of."""

    store: Store
    clock: SystemClock
    installation: str
    metrics: Metrics
    providers: Providers
    activity: Activity
    changes: Changes
    guests: Guests
    making: Making
    sandboxes: Sandboxes
    snapshots: Snapshots
    automatic: AutomaticSnapshots
    pools: Pools
    volumes: Volumes
    audit_guard: AuditGuard

    @property
    def task_parts(self) -> TaskParts: ...
    @property
    def egress_log(self) -> EgressLog: ...
    @property
    def egress_asks(self) -> EgressAsks: ...


def rounds_of(parts: Parts, reap_every_s: float) -> Rounds:
    pressure = _pressure(parts)
    pressure.told.append(parts.pools.under_pressure)
    parts.metrics.pools = parts.pools.states
    parts.metrics.audit = lambda: parts.audit_guard.state
    housekeeping = Housekeeping(
        parts.store,
        parts.clock,
        parts.automatic,
        volumes=parts.volumes,
        cleaning=parts.task_parts.care.cleaning,
        images=parts.making.images,
    )
    reaper = Reaper(
        parts.store,
        parts.clock,
        parts.providers,
        changes=parts.changes,
        sandboxes=parts.sandboxes,
        guests=parts.guests,
        activity=parts.activity,
        every_s=reap_every_s,
    )
    reconciler = _reconciler(parts)
    reconciler.set_aside = parts.task_parts.care.quarantines.finish
    return Rounds(
        reaper,
        reconciler,
        pressure,
        housekeeping,
        parts.egress_log,
        parts.egress_asks,
        parts.task_parts.workers,
        parts.task_parts.waking,
        MessageExpiry(parts.store, parts.clock),
        parts.audit_guard,
    )


def _reconciler(parts: Parts) -> Reconciler:
    return Reconciler(
        parts.store,
        parts.clock,
        parts.providers,
        changes=parts.changes,
        making=parts.making,
        sandboxes=parts.sandboxes,
        snapshots=parts.snapshots,
        installation=parts.installation,
    )


def _pressure(parts: Parts) -> Pressure:
    return Pressure(
        parts.store,
        parts.clock,
        host_memory,
        changes=parts.changes,
        sandboxes=parts.sandboxes,
        providers=parts.providers,
        activity=parts.activity,
        here=_ON_THIS_HOST,
    )
