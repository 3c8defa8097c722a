"""What is done in a sandbox before its client has it: users, directories, and what starts."""

import asyncio
import time
from contextlib import suppress

from paddock.domain.build import Left
from paddock.domain.errors import NotFound, TimedOut
from paddock.domain.records import SandboxRecord
from paddock.domain.repetition import own_key
from paddock.domain.team import Principal
from paddock.interfaces.api.context import Services
from paddock.interfaces.e2b import interpreter
from paddock.interfaces.e2b.marks import Mark, mark_of
from paddock.interfaces.e2b.sources import find_source
from paddock.services.commands import Background, Command

_READY_S = 60.0
_ASK_S = 0.1


async def settle(given: Services, who: Principal, sandbox: SandboxRecord, left: Left) -> None:
    """Once the machine runs: also a second time, when somebody asks again with the same key."""
    if left.user or left.workdir:
        async with given.inside.enter(who, sandbox.id, "") as entered:
            await entered.guest.init(user=left.user or None, workdir=left.workdir or None)
    if left.start:
        argv = ("/bin/bash", "-lc", left.start)
        command = Command(argv, cwd=left.workdir, user=left.user)
        key = own_key(f"start {sandbox.id} {sandbox.started_at}")
        background = Background(key=key, drop_when_full=True)
        await given.commands.start(who, sandbox.id, command, background)
    if left.ready:
        await _ready(given, who, sandbox, left)
    if sandbox.template == interpreter.TEMPLATE:
        await interpreter.start(given, who, sandbox)


async def settle_again(given: Services, who: Principal, sandbox: SandboxRecord) -> None:
    """After a start, when nothing that was running runs any more."""
    left = Left()
    if name := mark_of(sandbox, Mark.TEMPLATE):
        with suppress(NotFound):  # it is gone; the disk is all that is left of it
            left = (await find_source(given, who, name)).left
    await settle(given, who, sandbox, left)


async def _ready(given: Services, who: Principal, sandbox: SandboxRecord, left: Left) -> None:
    until = time.monotonic() + _READY_S
    argv = ("/bin/bash", "-lc", left.ready)
    command = Command(argv, cwd=left.workdir, user=left.user, timeout_s=_READY_S)
    while (await given.commands.run(who, sandbox.id, command)).exit_code:
        if time.monotonic() > until:
            raise TimedOut(
                f"what starts with template {mark_of(sandbox, Mark.TEMPLATE)} was not ready "
                f"within {_READY_S:g} s",
                remediation="look at its start and ready commands",
            )
        await asyncio.sleep(_ASK_S)
