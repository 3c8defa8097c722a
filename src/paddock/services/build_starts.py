"""Apply user, directory and start command of a team's template to a new sandbox."""

import asyncio
from collections.abc import Sequence

from paddock.domain.build import Left
from paddock.domain.errors import TimedOut
from paddock.domain.ids import new_id
from paddock.domain.records import SandboxRecord
from paddock.ports.clock import Clock
from paddock.ports.store import Store
from paddock.services.build_records import ready_build
from paddock.services.commands import COMMAND_PREFIX
from paddock.services.guests import Guests
from paddock.services.policies import Policies
from paddock.services.sandbox_plan import TEMPLATE_LABEL
from paddock.services.system import system
from paddock.services.transfers import TransferGuest

_READY_S = 60.0
_ASK_S = 0.1


class BuildStarts:
    """Talks to the guest itself: it is called while the sandbox is locked, and not yet on record as
    running."""

    def __init__(self, store: Store, clock: Clock, guests: Guests, policies: Policies) -> None:
        self._store = store
        self._clock = clock
        self._guests = guests
        self._policies = policies

    async def start(self, sandbox: SandboxRecord) -> None:
        """TimedOut if what starts is not ready in time. A template that is gone starts nothing."""
        template = sandbox.labels.get(TEMPLATE_LABEL, "")
        if not template:
            return
        build = await self._store.read(lambda tx: ready_build(tx, sandbox.team_id, template))
        if build is None:
            return
        left, guest = build.left, await self._guests.of(sandbox)
        if left.user or left.workdir:
            await guest.init(user=left.user or None, workdir=left.workdir or None)
        if left.start:
            argv = await self._checked(sandbox, left.start)
            await guest.runs.start(
                new_id(COMMAND_PREFIX),
                argv,
                user=left.user or None,
                cwd=left.workdir or None,
                drop_when_full=True,
                inbox=False,
            )
        if left.ready:
            await self._ready(sandbox, guest, left)

    async def _ready(self, sandbox: SandboxRecord, guest: TransferGuest, left: Left) -> None:
        until = self._clock.now() + _READY_S
        argv = await self._checked(sandbox, left.ready)
        user, cwd = left.user or None, left.workdir or None
        while (await guest.exec(argv, user=user, cwd=cwd, timeout=_READY_S)).exit_code:
            if self._clock.now() > until:
                template = sandbox.labels[TEMPLATE_LABEL]
                raise TimedOut(
                    f"the start command of template {template} was not ready within {_READY_S:g} s",
                    remediation="check its start and ready commands",
                )
            await asyncio.sleep(_ASK_S)

    async def _checked(self, sandbox: SandboxRecord, script: str) -> Sequence[str]:
        argv = ("/bin/bash", "-lc", script)
        await self._policies.check(system(sandbox.team_id, "template"), sandbox, argv, {})
        return argv
