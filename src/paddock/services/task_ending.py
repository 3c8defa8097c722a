"""How a task ends: its agent with it, and with what there is to see of its work.

It ends when its time is up, or when nobody wants it any more, also while somebody whom it needs for
that is away: what can be done then is done, and the rest is said.
"""

import asyncio
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from paddock.domain.errors import PaddockError
from paddock.domain.reason import Reason
from paddock.domain.task import Phase, TaskRecord, TaskState
from paddock.domain.task_course import Next, Step, regardless
from paddock.ports.clock import Clock
from paddock.services.task_checks import result_of
from paddock.services.task_hold import Hold
from paddock.services.task_judging import last_found
from paddock.services.task_modes import Modes
from paddock.services.task_moves import Moves, reason_of
from paddock.services.task_workspace import LOST, Workspaces

_LAST_S = 20.0
"""For what is tried at the end, where somebody was away before."""


class Endings:
    """The same for every task."""

    def __init__(
        self,
        clock: Clock,
        workspaces: Workspaces,
        *,
        moves: Moves,
        modes: Modes,
        force_s: float,
    ) -> None:
        self._clock = clock
        self._force_s = force_s
        self._workspaces = workspaces
        self._moves = moves
        self._modes = modes

    async def end(self, hold: Hold, following: Next) -> None:
        """As was decided, with what there is to see. What was done is done when it can be had."""
        await self._collect(hold, is_needed=following.step is Step.COMPLETE)
        await self._finish(hold, following)

    async def cancel(self, hold: Hold) -> None:
        """Nobody wants it any more, and its agent may not have begun."""
        await self._end_agent(hold.task)
        if _has_not_begun(hold.task):
            await self._workspaces.discard(hold.task)
        await self.end(hold, Next(Step.CANCEL, reason=Reason.CANCELLED))

    async def fail(self, hold: Hold, error: PaddockError, why: str = "") -> None:
        """Somebody has refused something for good; `why` says what more there is to it."""
        task = await hold.refresh()
        if task.is_cancelled:
            return await self.cancel(hold)
        sandbox, reason = await self._workspaces.sandbox(task), reason_of(error)
        if sandbox is not None and sandbox.state in LOST:
            reason = sandbox.reason or Reason.PROVIDER_LOST
        await self._end_agent(task)
        said = f"{in_words(error)}; {why}" if why else in_words(error)
        await self.end(hold, Next(Step.FAIL, reason=reason, why=said))
        return None

    async def end_regardless(self, hold: Hold, error: PaddockError) -> bool:
        """Somebody whom it needs is away, so that nothing of it can be done properly. Whether it
        has ended all the same; False while it may wait for them."""
        task = await hold.refresh()
        is_late = (
            task.deadline is not None
            and self._clock.wall() >= task.deadline
            and task.state is not TaskState.WAITING
        )
        end = regardless(
            in_words(error), is_cancelled=task.is_cancelled, is_late=is_late, tries=hold.tries
        )
        if end is None:
            return False
        await self._end_somehow(hold, error.message)
        await self._finish(hold, end)
        return True

    async def give_up(self, hold: Hold, why: str) -> None:
        """Nobody can move it on. Its agent is ended, and what can be seen of its work is kept."""
        await self._end_agent(hold.task)
        with suppress(PaddockError):
            await self._collect(hold)
        await self._finish(hold, Next(Step.FAIL, reason=Reason.CRASHED, why=why))

    async def put_back(self, hold: Hold) -> None:
        """What its agent was not to change."""
        if hold.task.directory and not await self._workspaces.is_lost(hold.task):
            await self._modes.keep(hold)

    async def _finish(self, hold: Hold, following: Next) -> None:
        await self._workspaces.accounts.settle(hold.task)
        states = {Step.COMPLETE: TaskState.COMPLETED, Step.CANCEL: TaskState.CANCELLED}
        state = states.get(following.step, TaskState.FAILED)
        await self._moves.finish(hold, state, following.reason, following.why)

    async def _collect(self, hold: Hold, *, is_needed: bool = False) -> None:
        """What there is to see of it, however it ended. The sandbox itself is kept."""
        await self.put_back(hold)

        async def look() -> dict[str, Any]:
            try:
                async with self._workspaces.tree(hold.task) as tree:
                    commit, unread = await tree.keep_after()
                    files = [asdict(each) for each in await replace(tree, after=commit).changes()]
                    return {"commit": commit, "files": files, "unseen": unread}
            except PaddockError as error:
                is_lost = await self._workspaces.is_lost(hold.task)
                if is_needed if is_lost else error.passes:
                    raise
                return {"unseen": error.message}

        last = last_found(hold)
        await self._moves.phase_anyway(
            hold,
            Phase.SYNC_OUT,
            look,
            lambda task, got: replace(task, result=result_of(task, got, last)),
        )

    async def _end_somehow(self, hold: Hold, why: str) -> None:
        """What can be done of that; who is away may have come back. What was made is not lost by
        it: its sandbox is kept as one that may hold work."""
        try:
            async with asyncio.timeout(_LAST_S):
                await self._end_agent(hold.task)
                if _has_not_begun(hold.task):
                    await self._workspaces.discard(hold.task)
                await self._collect(hold)
        except (PaddockError, TimeoutError):
            result = result_of(hold.task, {"unseen": why}, last_found(hold))
            await hold.change(lambda _tx, task: replace(task, result=task.result or result))

    async def _end_agent(self, task: TaskRecord) -> None:
        """Nobody will look after it any more."""
        if task.conversation.is_running and task.conversation.is_started:
            with suppress(PaddockError):
                async with self._workspaces.enter(task) as entered:
                    await entered.guest.runs.end(task.conversation.run_key(task.id), self._force_s)


def _has_not_begun(task: TaskRecord) -> bool:
    """In the sandbox that it has now, its agent has not."""
    return not task.conversation.run or task.conversation.back_to is not None


def in_words(error: PaddockError) -> str:
    """What was found, and what to do about it."""
    return f"{error.message} ({error.remediation})" if error.remediation else error.message
