"""How a task is moved on: its states, its phases and its end, each written with what is told of it.

Other than `task_run`, nothing here decides.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from paddock.domain import conversation as talks
from paddock.domain.errors import Conflict, LimitExceeded, NotFound, PaddockError, ProviderError
from paddock.domain.event import Event
from paddock.domain.reason import Reason
from paddock.domain.task import Phase, Result, TaskRecord, TaskState, moved
from paddock.domain.task_warnings import warnings_of
from paddock.ports.clock import Clock
from paddock.ports.store import Transaction
from paddock.services import task_mail
from paddock.services.approvals import Approvals
from paddock.services.task_events import phase_event, state_event
from paddock.services.task_hold import Hold
from paddock.services.wakes import Wakes

T = TypeVar("T")


class Cancelled(Exception):
    """Somebody wants the task to end, and no agent is at work that could be asked to."""


class GivenUp(Exception):
    """Nothing can come of the task any more."""

    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason = reason
        self.why = why


def reason_of(error: PaddockError) -> Reason:
    """Why a task that somebody's refusal ended, ended."""
    if isinstance(error, ProviderError):
        return Reason.PROVIDER
    if isinstance(error, Conflict | NotFound | LimitExceeded):
        return Reason.SANDBOX_UNAVAILABLE
    return Reason.INTERNAL if type(error) is PaddockError else Reason.SURROUNDINGS


class Moves:
    """The same for every task."""

    def __init__(self, clock: Clock, wakes: Wakes, approvals: Approvals) -> None:
        self._clock = clock
        self._wakes = wakes
        self._approvals = approvals

    async def to(self, hold: Hold, target: TaskState, *, phase: Phase | None = None) -> None:
        now = self._clock.wall()

        def change(tx: Transaction, task: TaskRecord) -> TaskRecord:
            changed = replace(moved(task, target, now), phase=phase or task.phase)
            tx.events.append([state_event(changed, now)])
            return changed

        await hold.change(change)

    async def finish(
        self, hold: Hold, target: TaskState, reason: Reason | None, detail: str
    ) -> None:
        now = self._clock.wall()

        def change(tx: Transaction, task: TaskRecord) -> TaskRecord:
            ended = moved(task, target, now, reason=reason, detail=detail[:2000])
            seconds = now - (task.started_at or now)
            is_review = task.conversation.stage is talks.Stage.REVIEW
            message = task.words if is_review else talks.verdict(task.conversation).last_words
            result = replace(
                task.result or Result(),
                message=message,
                rounds=task.rounds,
                plan=task.plan,
                reviews=task.reviews,
                reverted=task.reverted,
                seconds=round(seconds, 3),
            )
            if target is TaskState.COMPLETED:
                result = replace(result, warnings=warnings_of(task, result))
            ended = replace(ended, result=result, paused_by="")
            task_mail.give_up(tx, task.id, f"its task is {target}", now)
            self._approvals.withdraw(tx, task.waits_for, f"its task is {target}", now)
            tx.events.append([state_event(ended, now)])
            return ended

        await hold.change(change)

    async def phase(
        self,
        hold: Hold,
        phase: Phase,
        do: Callable[[], Awaitable[Any]],
        change: Callable[[TaskRecord, Any], TaskRecord] = lambda task, _output: task,
        *,
        step: str = "",
        tell: Callable[[TaskRecord, Any], Sequence[Event]] = lambda _task, _output: (),
    ) -> Any:
        """Told when it begins, and done once; a phase that comes again has a step for each time."""
        step = step or phase
        if not hold.has_done(step):
            await hold.refresh()
            self.check_wanted(hold)
            now = self._clock.wall()
            event = phase_event(replace(hold.task, phase=phase), now)
            if hold.task.phase is not phase:
                await hold.change(lambda _tx, task: replace(task, phase=phase), event)
        return await hold.step(step, lambda: self.unless_cancelled(hold, do()), change, tell)

    async def phase_anyway(
        self,
        hold: Hold,
        phase: Phase,
        do: Callable[[], Awaitable[Any]],
        change: Callable[[TaskRecord, Any], TaskRecord],
    ) -> None:
        """Also of a task that nobody wants any more."""
        if hold.task.directory:
            done = lambda task, got: replace(change(task, got), phase=phase)  # noqa: E731
            await hold.step(phase, do, done)

    def check_wanted(self, hold: Hold) -> None:
        if hold.task.is_cancelled:
            raise Cancelled
        begins = hold.task.state in (TaskState.PENDING, TaskState.CREATING)
        late = hold.task.deadline is not None and self._clock.wall() >= hold.task.deadline
        if begins and late:
            what = "could go on in another sandbox" if hold.task.losses else "began"
            why = f"the task's {hold.task.wish.timeout_s:g} s were over before its agent {what}"
            stood = f"; it stood still: {hold.task.detail}" if hold.task.detail else ""
            raise GivenUp(Reason.DEADLINE, f"{why}{stood} (give it more time)")

    async def rest(self, hold: Hold, seconds: float) -> None:
        """Before it is tried again; whoever wants something of it need not wait for that."""
        with self._wakes.of(hold.task.id) as news:
            news.clear()
            if (await hold.refresh()).is_cancelled:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await news.wait()

    async def unless_cancelled(self, hold: Hold, work: Awaitable[T]) -> T:
        """What takes long and may be broken off. It is not done any more when this returns, however
        it does: whoever has the task then may do the same."""
        doing = asyncio.ensure_future(work)
        try:
            await self._watch(hold, doing)
            return doing.result()
        finally:
            if not doing.done():
                doing.cancel()
                await asyncio.gather(doing, return_exceptions=True)

    async def _watch(self, hold: Hold, doing: "asyncio.Future[Any]") -> None:
        """Until it is done; Cancelled when nobody wants it any more."""
        with self._wakes.of(hold.task.id) as news:
            while not (await _done(doing, news)):
                if (await hold.refresh()).is_cancelled:
                    raise Cancelled


async def _done(doing: "asyncio.Future[Any]", news: asyncio.Event) -> bool:
    """When it is, or when there is news."""
    woken: asyncio.Future[Any] = asyncio.ensure_future(news.wait())
    try:
        await asyncio.wait({doing, woken}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        woken.cancel()
    news.clear()
    return doing.done()
