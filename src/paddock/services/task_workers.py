"""Workers move tasks on. Of several processes on one database each has its own, and takes over what
another has left: a task is somebody's for as long as they say so."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from paddock.domain import standing
from paddock.domain.errors import Broken, PaddockError
from paddock.domain.event import EventKind
from paddock.domain.ids import new_id
from paddock.domain.reason import Reason
from paddock.domain.standing import ALERT_AFTER_S
from paddock.domain.task import Lease, TaskRecord, TaskState, moved
from paddock.domain.task_start import is_given_up
from paddock.domain.vitals import Thresholds
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.ports.tasks import Step
from paddock.services import task_mail
from paddock.services.beats import begun, forget_beat, forget_silent, note_beat
from paddock.services.task_ending import in_words
from paddock.services.task_events import note, state_event
from paddock.services.task_hold import AT_WORK, Fenced, Hold
from paddock.services.task_starting import Run, Stalled, run_or_stall

_log = logging.getLogger(__name__)
LASTS_S = 6.0
_RENEWED = 3
_POLL_S = 1.0
MOST_ATTEMPTS = 20
"""A task that has ended so many workers is given up, properly: its agent ended, its work kept."""
_LAST_ATTEMPTS = 3
"""At that. One that ends whoever tries it is only written off."""

GiveUp = Callable[[Hold, str], Awaitable[None]]
"""Ends a task for this reason, whatever it takes."""
Turns = Callable[[Transaction, Sequence[TaskRecord]], Sequence[TaskRecord]]
"""Of those that wait, the ones whose turn it is, in order."""
_WAITING_OF_EACH = 100


class TaskWorkers:
    """Those of this process."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        run: Run,
        *,
        turns: Turns = lambda _tx, waiting: waiting,
        give_up: GiveUp | None = None,
        most: int = 64,
        version: str = "",
        health: Thresholds | None = None,
        alert_after_s: float = ALERT_AFTER_S,
    ) -> None:
        self._store = store
        self._clock = clock
        self._run = run
        self._turns = turns
        self._give_up = give_up or self._write_off
        self._most = most
        self._health = health or Thresholds()
        self._alert_after_s = alert_after_s
        self._name = new_id("prc")
        self._beat = begun(self._name, version, clock.wall(), most)
        self._going: dict[str, asyncio.Task[None]] = {}
        self._kick = asyncio.Event()

    def kick(self) -> None:
        """There is something new to do: nobody has to wait for the next look."""
        self._kick.set()

    def is_at(self, task_id: str) -> bool:
        return task_id in self._going

    async def run(self) -> None:
        """Until cancelled; then every task is let go of, and goes on wherever it is taken up."""
        if not self._store.is_shared:
            await self._free_all()
        renewing = asyncio.create_task(self._renew(), name="leases of tasks")
        try:
            with suppress(PaddockError):  # the next beat comes soon
                await self.renew()
            while True:
                await self._look_and_wait()
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            await self._stop()

    async def _free_all(self) -> None:
        """Where no other process can be, whoever held a task is dead: nobody has to wait for that
        to show."""

        def free(tx: Transaction) -> None:
            forget_silent(tx, self._clock.wall())
            for task in tx.tasks.held():
                tx.tasks.replace(replace(task, lease=replace(task.lease, owner="", until=0.0)))

        await self._store.write(free)

    async def _look_and_wait(self) -> None:
        self._kick.clear()
        try:
            await self.look()
        except PaddockError as error:
            _log.warning("tasks not looked at", extra={"error": error.message})
        except Exception:  # noqa: BLE001 - whatever it was, tasks are looked at again
            _log.exception("tasks not looked at")
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_S):
                await self._kick.wait()

    async def look(self) -> int:
        """Take up what is nobody's; how many there were."""
        room = self._most - len(self._going)
        claimed = await self._store.write(lambda tx: self._claim(tx, room)) if room > 0 else []
        for task in claimed:
            going = asyncio.create_task(self._move(task), name=f"task {task.id}")
            self._going[task.id] = going
            going.add_done_callback(partial(self._end, task.id))
        return len(claimed)

    def _end(self, task_id: str, going: "asyncio.Task[None]") -> None:
        if self._going.get(task_id) is going:
            del self._going[task_id]
        self._kick.set()

    def _claim(self, tx: Transaction, room: int) -> list[TaskRecord]:
        now = self._clock.wall()
        claimed: list[TaskRecord] = []
        begun = tx.tasks.claimable(now, 2 * room + 50)
        waiting = tx.tasks.pending(now, _WAITING_OF_EACH)
        unwanted = [task for task in waiting if task.is_cancelled]
        wanted = [task for task in waiting if not task.is_cancelled and not task.paused_by]
        turns = self._turns(tx, wanted)
        for task in (*begun, *unwanted, *turns):
            if len(claimed) == room:
                break
            if task.id in self._going:
                continue  # its lease was renewed too late, but nobody else has it
            if task.attempts >= MOST_ATTEMPTS + _LAST_ATTEMPTS:
                tx.tasks.replace(_failed(tx, task, now=now, detail=_ended_all(task)))
                continue
            lease = Lease(self._name, task.lease.fence + 1, now + LASTS_S)
            tx.tasks.replace(replace(task, lease=lease, attempts=task.attempts + 1))
            if (whole := _read(tx, task.id)) is not None:
                claimed.append(whole)
        return claimed

    async def _move(self, task: TaskRecord) -> None:
        hold = await Hold.take(self._store, self._clock, task)
        rest_s = 0.0
        try:
            if task.attempts > MOST_ATTEMPTS:
                await self._give_up(hold, _ended_all(task))
                return
            await run_or_stall(self._run, hold, self._health)
        except Stalled as stalled:
            await self._give_out(hold, str(stalled))
            return
        except Fenced:
            _log.warning("task taken over by another worker", extra={"id": task.id})
            return
        except PaddockError as error:
            await self._stand(hold, error)
            return
        except Exception:  # noqa: BLE001 - one task that finds a fault of ours ends no other
            rest_s = standing.rest_s(task.attempts, self._clock.wall(), deadline=task.deadline)
            _log.exception("task not moved on", extra={"id": task.id})
        with suppress(Fenced, PaddockError):
            if not hold.task.state.is_final:
                await hold.let_go(for_s=rest_s)

    async def _stand(self, hold: Hold, error: PaddockError) -> None:
        """Somebody it needs is away. That ends no worker, so it is tried for as long as it has.
        What is in its way is told once, and not of what is over at the next try."""
        task, now, why = hold.task, self._clock.wall(), in_words(error)
        _log.warning("task not moved on", extra={"id": task.id, "error": error.message})
        name = f"stands.{task.state}.{task.phase}.{task.conversation.run}.{error.code}"
        is_news = hold.tries > 1 and not hold.has_done(name)

        def note_it(tx: Transaction, current: TaskRecord) -> TaskRecord:
            if is_news:
                tx.steps.add(Step(task.id, name, why, now))
                data = {"why": why, "phase": task.phase, "attempt": hold.tries}
                tx.events.append([note(task, EventKind.TASK_STALLED, now, data)])
            return self._stood(tx, current, why, error) if current.state in AT_WORK else current

        attempts = min(hold.tries, MOST_ATTEMPTS // 2)
        with suppress(Fenced, PaddockError):
            if not task.state.is_final:
                asked = {"deadline": task.deadline, "asked_s": error.retry_after_s}
                rest_s = standing.rest_s(hold.tries, now, **asked)
                await hold.let_go(for_s=rest_s, attempts=attempts, change=note_it)

    def _stood(
        self, tx: Transaction, task: TaskRecord, why: str, error: PaddockError
    ) -> TaskRecord:
        """What is in its way is on record, and people are alerted when it lasts."""
        now = self._clock.wall()
        stands, is_time = standing.stood(task.standing, now, self._alert_after_s)
        if is_time:
            data = {"why": why, "code": error.code, "phase": task.phase, "since": stands.since}
            tx.events.append([note(task, EventKind.TASK_HELD_UP, now, data)])
        return replace(task, detail=why[:2000], standing=stands)

    async def _give_out(self, hold: Hold, why: str) -> None:
        """To the next who looks, at once; or to nobody, when it was so often enough."""
        task, now = hold.task, self._clock.wall()
        _log.warning("task stalled", extra={"id": task.id, "why": why, "attempt": task.attempts})
        data = {"why": why, "phase": task.phase, "attempt": task.attempts}
        event = note(task, EventKind.TASK_STALLED, now, data)
        with suppress(Fenced, PaddockError):
            if not is_given_up(task, self._health):
                await hold.let_go(attempts=task.attempts, told=(event,))
                return
            await hold.change(lambda _tx, current: current, event)
            await self._give_up(hold, f"{why}; it was given out {task.attempts} times")

    async def _write_off(self, hold: Hold, why: str) -> None:
        now = self._clock.wall()
        await hold.change(partial(_failed, now=now, detail=why))

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(LASTS_S / _RENEWED)
            try:
                await self.renew()
            except PaddockError as error:
                _log.warning("tasks not renewed", extra={"error": error.message})
            except Exception:  # noqa: BLE001 - who stops renewing loses every task
                _log.exception("tasks not renewed")

    async def renew(self) -> None:
        """Say that this process is alive. What is not its own any more, it drops at once; whose
        end somebody wants, learns of it."""

        until = self._clock.wall() + LASTS_S
        going = list(self._going)
        beat = replace(self._beat, at=self._clock.wall(), tasks=len(going))

        def write(tx: Transaction) -> set[str]:
            note_beat(tx, beat)
            return set(tx.tasks.renew(self._name, going, until))

        kept = await self._store.write(write)
        for task_id in set(going) - kept:
            if (lost := self._going.get(task_id)) is not None:
                lost.cancel()

    async def _stop(self) -> None:
        going = list(self._going.values())
        for each in going:
            each.cancel()
        await asyncio.gather(*going, return_exceptions=True)

        def release(tx: Transaction) -> None:
            forget_beat(tx, self._name)
            for task in tx.tasks.held(self._name):
                tx.tasks.replace(replace(task, lease=replace(task.lease, owner="", until=0.0)))

        with suppress(PaddockError):  # then it lapses by itself
            await self._store.write(release)


def _read(tx: Transaction, task_id: str) -> TaskRecord | None:
    """One whose wish cannot be read is nobody's, and in nobody's way, until its lease ends."""
    try:
        return tx.tasks.get(ANY_TEAM, task_id)
    except Broken as error:
        _log.error("task left alone", extra={"id": task_id, "error": error.message})
        return None


def _ended_all(task: TaskRecord) -> str:
    return f"it was taken up {task.attempts} times and never came to an end"


def _failed(tx: Transaction, task: TaskRecord, *, now: float, detail: str) -> TaskRecord:
    """Given up; what it was still to be told is not."""
    failed = moved(task, TaskState.FAILED, now, reason=Reason.CRASHED, detail=detail)
    task_mail.give_up(tx, task.id, "its task was given up", now)
    tx.events.append([state_event(failed, now)])
    return failed
