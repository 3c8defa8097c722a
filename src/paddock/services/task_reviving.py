"""A sandbox that does not answer under its task, though its provider runs it: it is stopped and
started, which its disk survives; one that does not answer after that either counts as lost."""

import logging
from functools import partial

from paddock.domain.errors import PaddockError
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord, moved
from paddock.domain.sandbox import SandboxState
from paddock.domain.task import TaskRecord
from paddock.domain.task_loss import step_after
from paddock.domain.vitals import lasting
from paddock.ports.clock import Clock
from paddock.services.changes import Changes
from paddock.services.providers import Providers
from paddock.services.system import system
from paddock.services.task_config import TasksConfig
from paddock.services.task_hold import Hold
from paddock.services.task_workspace import Workspaces
from paddock.services.verbs import ref_of

_log = logging.getLogger(__name__)
_LOOKS = 2
"""A single one may have been unlucky."""
_LATELY = 5
"""Times as long as it takes to be gone."""


class Reviving:
    """The same for every task."""

    def __init__(
        self,
        clock: Clock,
        workspaces: Workspaces,
        providers: Providers,
        *,
        changes: Changes,
        config: TasksConfig,
    ) -> None:
        self._clock = clock
        self._changes = changes
        self._workspaces = workspaces
        self._providers = providers
        self._config = config
        self._health = config.health

    async def __call__(self, hold: Hold) -> bool:
        """Whether something was done about it, so that the task is worth another try at once."""
        task, now = hold.task, self._clock.wall()
        silent_s = self._silent_s(task, now)
        if not silent_s or not await self._is_silent(task):
            return False
        step = step_after(task.losses, f"revived.{task.conversation.run}")
        before = hold.output(step)
        if before is None:
            return await self._start_anew(hold, step, silent_s)
        if not self._is_lost(task, now - before["at"]):
            return False
        await self._give_up(task)
        return True

    def _silent_s(self, task: TaskRecord, now: float) -> float:
        """How long the task has stood still, if that is long enough for it to be the sandbox."""
        since = task.standing.since if task.standing is not None else now
        silent_s = now - since
        return silent_s if task.sandbox_id and silent_s >= self._health.gone_s else 0.0

    async def _is_silent(self, task: TaskRecord) -> bool:
        """Other things than that keep tasks, too, such as a provider that is away: then its sandbox
        is left alone."""
        for _ in range(_LOOKS):
            sandbox = await self._changes.find(task.team_id, task.sandbox_id)
            if sandbox.quarantine is not None or not await self._runs(sandbox):
                return False
            if await self._workspaces.answers(task):
                return False
        return await self._runs(sandbox)

    async def _runs(self, sandbox: SandboxRecord) -> bool:
        """Its provider says so, just now, and can stop it."""
        if sandbox.state is not SandboxState.RUNNING:
            return False
        try:
            provider = self._providers.get(sandbox.provider)
            seen = await provider.observe(ref_of(sandbox))
        except PaddockError:
            return False
        return provider.capabilities.stop and seen.state is SandboxState.RUNNING

    async def _start_anew(self, hold: Hold, step: str, silent_s: float) -> bool:
        task, why = hold.task, f"its guest did not answer for {lasting(silent_s)}"
        _log.warning("sandbox does not answer", extra={"id": task.sandbox_id, "task": task.id})
        try:
            if not await self._workspaces.start_anew(task, why):
                return False
        except PaddockError as error:  # it is tried again with the next try of the task
            _log.warning("not started again", extra={"task": task.id, "error": error.message})
            return False
        await hold.step(step, partial(_noted, self._clock.wall()))
        return True

    def _is_lost(self, task: TaskRecord, since_s: float) -> bool:
        """It was started again lately, and has not answered since. What did for long and does not
        any more is left to people: they are alerted."""
        may_be = task.wish.workspace.makes_one and self._config.replace_lost
        return may_be and self._health.gone_s <= since_s <= _LATELY * self._health.gone_s

    async def _give_up(self, task: TaskRecord) -> None:
        detail = "its guest does not answer, also after it was started again"

        def lost(current: SandboxRecord) -> SandboxRecord:
            if current.state is not SandboxState.RUNNING:
                return current  # somebody has changed it meanwhile
            now = self._clock.wall()
            return moved(current, SandboxState.FAILED, now, reason=Reason.CRASHED, detail=detail)

        await self._changes.apply(task.sandbox_id, lost, system(task.team_id, "tasks"))


async def _noted(now: float) -> dict[str, float]:
    return {"at": now}
