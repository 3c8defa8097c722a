"""How a sandbox comes to be and goes: the steps, in an order that can be cut off anywhere.

The record is written before the first thing is made and removed after the last thing is gone, so
whatever a killed process leaves behind has a record that says so, or is of no use to anybody.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.host.fences import Fences
from paddock.adapters.providers.host.owner import Locks, Owner
from paddock.adapters.providers.local import runtime
from paddock.adapters.providers.local.fencing import enclosed, is_fenced
from paddock.adapters.providers.local.layout import Layout, archive_of
from paddock.adapters.providers.local.machine import Machines, guest_env
from paddock.adapters.providers.local.memory import Memories
from paddock.adapters.providers.local.network import OpenNetwork
from paddock.adapters.providers.local.plan import Image, Plan
from paddock.adapters.providers.local.quiet import quiet
from paddock.adapters.providers.local.records import Keys, Records, SandboxRecord, boot_id
from paddock.adapters.providers.local.storage import Storage
from paddock.adapters.providers.local.storage.programs import hurried, stoppable
from paddock.domain.egress import NetworkMode
from paddock.domain.errors import Conflict, LimitExceeded, NotFound, PaddockError, Unavailable
from paddock.domain.ids import new_ulid
from paddock.domain.reason import Reason
from paddock.domain.sandbox import Resources, SandboxState, transition
from paddock.guest_client import Guest

_log = logging.getLogger(__name__)
_GRACE_S = 10.0
_PACKED_START_S = 20.0


@dataclass(frozen=True, slots=True)
class Life:
    """The life of the sandboxes of one installation, as this process directs it."""

    layout: Layout
    owner: Owner
    locks: Locks
    records: Records
    keys: Keys
    storage: Storage
    machines: Machines
    network: OpenNetwork
    fences: Fences
    memories: Memories
    on_step: Callable[[str], None]

    def volume(self, ref: str) -> Path:
        return self.storage.pool / "volumes" / ref

    def draft(self, plan: Plan, resources: Resources) -> SandboxRecord:
        """A record for a sandbox that is yet to be made."""
        return SandboxRecord(
            ref=new_ulid(),
            owner=self.owner.id,
            state=SandboxState.CREATING,
            template=plan.template,
            digest=plan.digest,
            lower=plan.lower,
            runtime=plan.runtime,
            created_at=time.time(),
            resources=resources,
            idmap=plan.idmap,
            no_new_privs=plan.no_new_privs,
            env=dict(plan.env),
            user=plan.user,
            workdir=plan.workdir,
            token=secrets.token_urlsafe(24),
        )

    async def make(self, record: SandboxRecord, plan: Plan) -> SandboxRecord:
        """Volume, machine, guest, network; the lock is held. On any failure all of it goes."""
        try:
            await self._fill_volume(record, plan)
            self.on_step("make.volume")
            record = await self.power_on(record, plan.image)
            self.on_step("make.running")
            return record
        except BaseException as error:
            with hurried(error):
                await uncancelled(self.unmake(record))
            raise

    async def _fill_volume(self, record: SandboxRecord, plan: Plan) -> None:
        volume = self.volume(record.ref)
        if plan.seed is None:
            owner = record.idmap.first if record.idmap else 0
            await uncancelled(asyncio.to_thread(self.storage.create, volume, owner))
        elif plan.source:
            async with self.locks.hold(plan.source):
                source = check_on_disk(await self.current(plan.source))
                async with quiet(source, self.machines.cgroup(source.ref)):
                    self.on_step("fork.frozen")
                    await stoppable(asyncio.to_thread(self.storage.clone, plan.seed, volume))
        else:
            await stoppable(asyncio.to_thread(self.storage.clone, plan.seed, volume))
        self.on_step("make.volume-limit")
        limit = record.resources.disk_mib << 20
        await asyncio.to_thread(self.storage.set_limit, volume, limit)

    async def power_on(self, record: SandboxRecord, image: Image | None = None) -> SandboxRecord:
        """Boot on the existing volume and note that it runs."""
        machine = await self.machines.boot(record, image)
        record = self.records.change(record, machine=machine)
        if record.egress.mode is NetworkMode.OPEN:
            record = await self.connect(record)
        elif is_fenced(record):
            await self.fences.put(enclosed(record))
        await self._meet_guest(record)
        return self.records.change(
            record, state=SandboxState.RUNNING, reason=None, detail="", owner=""
        )

    async def _meet_guest(self, record: SandboxRecord) -> None:
        """Return when it answers; one that starts inside takes its time, and is told its env."""
        packed = not runtime.choose(record.runtime).joinable
        until = time.monotonic() + (_PACKED_START_S if packed else 5.0)
        while True:
            try:
                async with Guest(self.machines.address(record)) as guest:
                    await guest.health()
                    if packed:
                        await guest.init(env=guest_env(record))
                return
            except Unavailable:
                alive = record.machine is not None and record.machine.alive()
                if not packed or not alive or time.monotonic() > until:
                    raise
                await asyncio.sleep(0.02)

    async def connect(self, record: SandboxRecord) -> SandboxRecord:
        """Give it the open network."""
        machine = record.machine
        assert machine is not None
        async with self.network.held():
            taken = {other.network for other in self.records.all()}
            number = next(number for number in range(len(taken) + 1) if number not in taken)
            record = self.records.change(record, network=number)
            try:
                await uncancelled(self.network.attach(machine.init, number))
            except BaseException:
                await uncancelled(self.network.detach(number))
                self.records.change(record, network=None)
                raise
        return record

    async def disconnect(self, record: SandboxRecord) -> SandboxRecord:
        """Take the open network away; the last one takes the bridge along."""
        if record.network is None:
            return record
        async with self.network.held():
            await self.network.detach(record.network)
            with contextlib.suppress(LimitExceeded):
                record = self.records.change(record, network=None)
            if all(other.network is None for other in self.records.all()):
                await self.network.remove()
        return record

    async def power_off(
        self, record: SandboxRecord, reason: Reason, detail: str = ""
    ) -> SandboxRecord:
        """End the machine, keep the volume."""
        record = self.records.read(record.ref) or record  # a failed start may have gone further
        await self.machines.end(record)
        if record.machine is not None:  # whatever its policy: it may have waited, fenced, in a pool
            await self.fences.shut(record.ref)
        record = await self.disconnect(record)
        return self.records.change(
            record,
            state=SandboxState.STOPPED,
            reason=reason,
            detail=detail,
            machine=None,
            owner="",
            away=False,
        )

    async def ask_to_finish(self, record: SandboxRecord, grace: float = _GRACE_S) -> None:
        """Let its processes end by themselves; one that cannot be asked is not waited for."""
        try:
            async with asyncio.timeout(grace + 2), Guest(self.machines.address(record)) as guest:
                await guest.shutdown(grace)
        except (Unavailable, TimeoutError):
            return

    async def unmake(self, record: SandboxRecord) -> None:
        """Whatever there is of it goes, the record last; the lock is held."""
        record = self.records.read(record.ref) or record  # the caller's may be an older one
        with contextlib.suppress(LimitExceeded):  # a full disk must not keep things from going
            record = self.records.change(record, state=SandboxState.DELETING, owner=self.owner.id)
        self.on_step("unmake.noted")
        await self.machines.end(record)
        self.on_step("unmake.machine")
        if record.machine is not None:  # whatever its policy: it may have waited, fenced, in a pool
            await self.fences.shut(record.ref)
        await self.disconnect(record)
        await asyncio.to_thread(self.storage.delete, self.volume(record.ref))
        self.on_step("unmake.volume")
        archive_of(self.layout, record.ref).unlink(missing_ok=True)
        if record.key:
            self.keys.release("sandbox", record.key, record.ref)
        self.on_step("unmake.key")
        self.records.remove(record.ref)

    @asynccontextmanager
    async def held(self, ref: str) -> AsyncIterator[SandboxRecord]:
        """The sandbox as it is now, with its lock."""
        async with self.locks.hold(ref):
            yield await self.current(ref)

    async def current(self, ref: str) -> SandboxRecord:
        """The record, after a look at whether its machine still lives; the lock is held."""
        record = self.records.read(ref)
        if record is None or record.state is SandboxState.DELETING:
            raise not_found(ref)
        return await self.refresh(record)

    async def refresh(self, record: SandboxRecord) -> SandboxRecord:
        if record.state is SandboxState.STOPPED and self.layout.bundle(record.ref).exists():
            # A process died in the midst of a start: what it had begun to run ends.
            return await self.power_off(record, record.reason or Reason.CRASHED, record.detail)
        if record.state not in (SandboxState.RUNNING, SandboxState.PAUSED):
            return record
        machine = record.machine
        if machine is not None and machine.alive():
            cgroup = self.machines.cgroup(record.ref)
            if record.state is SandboxState.RUNNING and cgroup.frozen():
                cgroup.thaw()  # a process died in the midst of a snapshot: the lock is ours now
            return await self._try_to_bring_back(record) if record.away else record
        if machine is None or machine.boot_id != boot_id():
            return await self.power_off(record, Reason.PROVIDER_LOST, "the host was restarted")
        if self.machines.cgroup(record.ref).oom_kills() > machine.oom_kills:
            return await self.power_off(record, Reason.OOM, "the kernel was out of memory for it")
        return await self.power_off(record, Reason.CRASHED, "its first process or guest ended")

    async def _try_to_bring_back(self, record: SandboxRecord) -> SandboxRecord:
        """One that does not come back can still be stopped, or asked for again."""
        try:
            return await self.memories.bring_back(record)
        except PaddockError as error:
            _log.warning("guest not brought back ref=%s error=%s", record.ref, error)
            return record

    def become(self, record: SandboxRecord, target: SandboxState) -> SandboxRecord:
        return self.records.change(record, state=transition(record.ref, record.state, target))


def check_on_disk(record: SandboxRecord) -> SandboxRecord:
    """The record, unless there is no disk that could be copied or booted from."""
    if record.state is not SandboxState.ARCHIVED:
        return record
    raise Conflict(
        f"sandbox {record.ref} is archived: its disk is packed up", remediation="start it first"
    )


def not_found(ref: str) -> NotFound:
    return NotFound(
        f"there is no sandbox {ref} on the local provider",
        remediation="`paddock sandbox ls` shows those that exist",
    )
