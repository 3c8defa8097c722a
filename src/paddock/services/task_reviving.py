"""A sandbox that does not answer under its task, though its provider runs it: it is stopped and
started, which its disk survives; one that does not answer after that either counts as lost."""

import logging
from contextlib import suppress
from functools import partial

from paddock.domain.errors import PaddockError
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord, moved
from paddock.domain.sandbox import SandboxState
from paddock.domain.task import TaskRecord
from paddock.domain.vitals import Thresholds, lasting
from paddock.ports.clock import Clock
from paddock.services.changes import Changes
from paddock.services.system import system
from paddock.services.task_hold import Hold
from paddock.services.task_workspace import Workspaces

_log = logging.getLogger(__name__)
_SILENT = "its guest did not answer for {}"


class Reviving:
    """The same for every task."""

    def __init__(
        self, clock: Clock, changes: Changes, workspaces: Workspaces, health: Thresholds
    ) -> None:
        self._clock = clock
        self._changes = changes
        self._workspaces = workspaces
        self._health = health

    async def __call__(self, hold: Hold) -> bool:
        """Whether something was done about it, so that the task is worth another try at once."""
        task, now = hold.task, self._clock.wall()
        silent_s = self._silent_s(task, now)
        if not silent_s or not await self._is_silent(task):
            return False
        step = f"revived.{task.conversation.run}"
        before = hold.output(step)
        if before is None:
            _log.warning("sandbox does not answer", extra={"id": task.sandbox_id, "task": task.id})
            # Written first: whoever dies over it does not try the same again.
            await hold.step(step, partial(_noted, now))
            await self._workspaces.start_anew(task, _SILENT.format(lasting(silent_s)))
            return True
        if not task.wish.workspace.makes_one or now - before["at"] < self._health.gone_s:
            return False
        await self._give_up(task)
        return True

    def _silent_s(self, task: TaskRecord, now: float) -> float:
        """How long the task has stood still, if that is long enough for it to be the sandbox."""
        since = task.standing.since if task.standing is not None else now
        silent_s = now - since
        return silent_s if task.sandbox_id and silent_s >= self._health.gone_s else 0.0

    async def _is_silent(self, task: TaskRecord) -> bool:
        """Other things than that keep tasks, too: then its sandbox is left alone."""
        sandbox = await self._changes.find(task.team_id, task.sandbox_id)
        if sandbox.state is not SandboxState.RUNNING or sandbox.quarantine is not None:
            return False
        return not await self._workspaces.answers(task)

    async def _give_up(self, task: TaskRecord) -> None:
        detail = "its guest does not answer, also after it was started again"

        def lost(current: SandboxRecord) -> SandboxRecord:
            now = self._clock.wall()
            return moved(current, SandboxState.FAILED, now, reason=Reason.CRASHED, detail=detail)

        with suppress(PaddockError):  # somebody has changed it meanwhile
            await self._changes.apply(task.sandbox_id, lost, system(task.team_id, "tasks"))


async def _noted(now: float) -> dict[str, float]:
    return {"at": now}
