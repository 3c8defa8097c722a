"""Sandboxes made ahead of time, and how one of them becomes the one that is asked for."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.local.life import Life
from paddock.adapters.providers.local.machine import guest_env
from paddock.adapters.providers.local.networks import fit_network
from paddock.adapters.providers.local.plan import Plan, host_resources
from paddock.adapters.providers.local.pool import WarmPool
from paddock.adapters.providers.local.records import SandboxRecord
from paddock.domain.errors import PaddockError
from paddock.domain.sandbox import Resources, SandboxState
from paddock.guest_client import Guest

_CLAIMS_AT_ONCE = 4
_REHEARSAL_S = 10.0


class WarmSandboxes(WarmPool):
    """The pool of one process. Those that wait carry its name and have no key."""

    def __init__(self, life: Life) -> None:
        super().__init__(self._make, self._discard)
        self._life = life
        # A claim is work, not waiting. In a burst each is done sooner, on average by half, when
        # they take turns than when all of them share the processors.
        self._turns = asyncio.Semaphore(_CLAIMS_AT_ONCE)
        self._plans: dict[str, Plan] = {}

    def assign(self, template: str, plan: Plan, size: int) -> None:
        """So many of a template wait; when its recipe was changed, those of the old one go."""
        before = self._plans.get(template, plan)
        if before != plan:
            self.resize(before, 0)
        self._plans[template] = plan
        self.resize(plan, size)

    def ready_of(self, template: str) -> int:
        """How many of a template wait now."""
        plan = self._plans.get(template)
        return self.ready(plan) if plan is not None else 0

    async def _make(self, plan: Plan) -> SandboxRecord:
        host = host_resources(self._life.storage.pool)
        draft = self._life.draft(plan, Resources().fitted(host))
        async with self._life.locks.hold(draft.ref):
            record = await self._life.make(self._life.records.write(draft), plan)
            try:
                await self._rehearse(record)
                return self._life.records.change(record, owner=self._life.owner.id)
            except BaseException:
                await uncancelled(self._life.unmake(record))
                raise

    async def _rehearse(self, record: SandboxRecord) -> None:
        """The first command of a guest takes three times as long as the second: it copies the
        memory that it touches. Here nobody waits for it; an image without `true` goes without."""
        async with Guest(self._life.machines.address(record)) as guest:
            with suppress(PaddockError):
                await guest.exec(["/bin/true"], timeout=_REHEARSAL_S)

    async def _discard(self, record: SandboxRecord) -> None:
        async with self._life.locks.hold(record.ref):
            await self._life.unmake(record)

    async def claim(
        self, waiting: SandboxRecord, draft: SandboxRecord, plan: Plan
    ) -> SandboxRecord | None:
        """Turn one that waited into the one that is drafted; None when another has its key.

        Whenever it does not become that one, it waits again as it did, or is destroyed.
        """
        held = False
        try:
            async with self._turns, self._life.locks.hold(waiting.ref):
                held = True
                return await self._claim_held(waiting, draft, plan)
        except BaseException:
            if not held:
                self.give_back(plan, waiting)
            raise

    async def _claim_held(
        self, waiting: SandboxRecord, draft: SandboxRecord, plan: Plan
    ) -> SandboxRecord | None:
        life = self._life
        wanted = replace(draft, ref=waiting.ref, token=waiting.token, machine=waiting.machine)
        try:
            life.records.write(wanted)
        except PaddockError:
            self.give_back(plan, waiting)  # what is written is still what it was
            raise
        try:
            holder = life.keys.claim("sandbox", wanted.key, wanted.ref)
        except PaddockError:
            await self._put_back(waiting, plan)
            raise
        if holder != wanted.ref:
            await self._put_back(waiting, plan)
            return None
        try:
            return await self._fit(wanted, waiting.resources)
        except BaseException:
            await uncancelled(life.unmake(wanted))
            raise

    async def _put_back(self, waiting: SandboxRecord, plan: Plan) -> None:
        """As it was; where that cannot be written down any more, it goes."""
        try:
            self.give_back(plan, self._life.records.write(waiting))
        except PaddockError:
            await uncancelled(self._life.unmake(waiting))

    async def _fit(self, record: SandboxRecord, had: Resources) -> SandboxRecord:
        """Limits, network and environment, changed while it runs."""
        life = self._life
        if record.resources != had:
            life.machines.change_limits(record)
            limit = record.resources.disk_mib << 20
            await asyncio.to_thread(life.storage.set_limit, life.volume(record.ref), limit)
        async with Guest(life.machines.address(record)) as guest:
            record, _ = await asyncio.gather(
                fit_network(life, record), guest.init(env=guest_env(record))
            )
        return life.records.change(
            record, state=SandboxState.RUNNING, owner="", created_at=time.time()
        )
