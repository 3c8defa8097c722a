"""How a sandbox is: its state, and how long it takes to answer. What sleeps goes on sleeping."""

from dataclasses import dataclass

from paddock.domain.errors import PaddockError
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.services.changes import Changes
from paddock.services.inside import Inside

_LONGEST_S = 10.0


@dataclass(frozen=True, slots=True)
class Checkup:
    """What was found."""

    sandbox_id: str
    name: str
    state: SandboxState
    is_healthy: bool
    latency_s: float | None = None
    """Of a command that does nothing, there and back; None when it was not asked."""
    detail: str = ""


class Checkups:
    """A mere look: it wakes nothing, and does not count as work."""

    def __init__(self, clock: Clock, changes: Changes, inside: Inside) -> None:
        self._clock = clock
        self._changes = changes
        self._inside = inside

    async def ask(self, principal: Principal, name: str) -> Checkup:
        principal.require(Scope.SANDBOXES_READ)
        box = await self._changes.find(principal.team_id, name)
        if box.state is not SandboxState.RUNNING:
            detail = f"it is {box.state}, so it was not asked"
            return Checkup(box.id, box.name, box.state, is_healthy=False, detail=detail)
        began = self._clock.now()
        try:
            async with self._inside.enter(principal, box.id, "", Scope.SANDBOXES_READ) as entered:
                ran = await entered.guest.exec(("/bin/sh", "-c", "exit 0"), timeout=_LONGEST_S)
            took, detail = self._clock.now() - began, ""
            if ran.exit_code:
                detail = f"a command that does nothing ended with {ran.exit_code}"
        except PaddockError as error:
            took, detail = None, error.message
        state = (await self._changes.find(principal.team_id, box.id)).state
        return Checkup(box.id, box.name, state, not detail, took, detail)
