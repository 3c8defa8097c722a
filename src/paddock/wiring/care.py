"""What looks after tasks and sandboxes."""

from collections.abc import Collection
from typing import Protocol

from paddock.domain.task import TaskRecord
from paddock.ports.clock import SystemClock
from paddock.ports.store import Store
from paddock.services.audit_guard import AuditGuard
from paddock.services.care import Care
from paddock.services.changes import Changes
from paddock.services.checkups import Checkups
from paddock.services.guests import Guests
from paddock.services.health import ProviderHealth
from paddock.services.inside import Inside
from paddock.services.leftovers import Leftovers
from paddock.services.making import Making
from paddock.services.providers import Providers
from paddock.services.quarantine import Quarantines
from paddock.services.sandboxes import Sandboxes
from paddock.services.secrets import Secrets
from paddock.services.snapshots import Snapshots
from paddock.services.status import StatusPage
from paddock.services.task_cleaning import TaskCleaning
from paddock.services.task_diagnosis import TaskDiagnosis
from paddock.services.task_workspace import Workspaces


class Parts(Protocol):
    """What it is made of."""

    store: Store
    clock: SystemClock
    changes: Changes
    sandboxes: Sandboxes
    snapshots: Snapshots
    guests: Guests
    inside: Inside
    providers: Providers
    making: Making
    audit_guard: AuditGuard

    @property
    def secrets(self) -> Secrets: ...


def care_of(parts: Parts, workspaces: Workspaces) -> Care:
    store, clock = parts.store, parts.clock

    async def values(task: TaskRecord) -> Collection[str]:
        box = await store.read(lambda tx: tx.sandboxes.get(task.team_id, task.sandbox_id))
        held = await parts.secrets.values(task.team_id, box.app if box else "")
        return {*held, *task.wish.env.values(), *(box.env.values() if box else ())}

    diagnosis = TaskDiagnosis(store, clock, workspaces, values)
    leftovers = Leftovers(store, parts.guests)
    quarantines = Quarantines(
        store,
        clock,
        changes=parts.changes,
        sandboxes=parts.sandboxes,
        snapshots=parts.snapshots,
        guests=parts.guests,
        providers=parts.providers,
        examine=diagnosis.examine,
        leftovers=leftovers,
    )
    parts.making.wakings.append(leftovers.woken)
    parts.sandboxes.holds.append(quarantines.hold)
    return Care(
        TaskCleaning(store, clock, parts.sandboxes, workspaces.trees),
        diagnosis,
        quarantines,
        StatusPage(
            store,
            clock,
            ProviderHealth(parts.providers, clock),
            quarantines,
            fallback=parts.making.fallback,
            audit=parts.audit_guard,
        ),
        Checkups(clock, parts.changes, parts.inside),
    )
