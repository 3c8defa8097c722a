"""A person's pause: a task stands still until somebody lets it go on, and its clock with it.

What somebody wants is written into the task; whoever holds it carries that out, now or after a
crash. Of two who want different things the last one counts.
"""

from collections.abc import Mapping
from dataclasses import replace

from paddock.domain.audit import AuditEntry
from paddock.domain.authority import Rank, check_outranks, rank_of
from paddock.domain.errors import Conflict, NotFound
from paddock.domain.event import EventKind
from paddock.domain.message import Mode
from paddock.domain.task import Lease, TaskRecord, TaskState, moved
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services import task_asking
from paddock.services.approvals import Approvals
from paddock.services.task_acting import answered, going_on, let_go_on, refusal
from paddock.services.task_asking import AGENT
from paddock.services.task_events import note, state_event
from paddock.services.task_hold import Hold
from paddock.services.wakes import Wakes

PERSON = "person"
"""What made a task wait that somebody has paused."""
_PAUSED_BY = "paused by "
_PARKED = 1e12
"""A time that nobody waits for."""
_CAN_PAUSE = (TaskState.PENDING, TaskState.CREATING, TaskState.RUNNING)


def found(tx: Transaction, team_id: str, task_id: str) -> TaskRecord:
    if (task := tx.tasks.get(team_id, task_id)) is not None:
        return task
    raise NotFound(
        f"there is no task {task_id[:80]}", remediation="`paddock task ls` shows those there are"
    )


def entry(
    principal: Principal, task: TaskRecord, action: str, now: float, **detail: object
) -> AuditEntry:
    return AuditEntry(task.team_id, principal.actor, action, task.id, now, detail)


def standing(task: TaskRecord) -> dict[str, object]:
    """How it is, for the audit log: what an act has changed shows there."""
    paused = bool(task.paused_by) or (task.state is TaskState.WAITING and not task.is_resumed)
    told: dict[str, object] = {"state": task.state, "phase": task.phase, "paused": paused}
    return told | ({"why": task.detail[:200]} if task.detail else {})


def _audit(
    tx: Transaction,
    principal: Principal,
    task: TaskRecord,
    action: str,
    *,
    now: float,
    after: Mapping[str, object],
) -> None:
    before = {**standing(task), "rank": task.held_rank}
    tx.audit.append([entry(principal, task, action, now, before=before, after=after)])


def _raised(
    tx: Transaction, principal: Principal, task: TaskRecord, *, rank: int, now: float
) -> TaskRecord:
    """Somebody above wants it to stand still too: from then on their word counts."""
    _audit(tx, principal, task, "task.pause", now=now, after={"paused": True, "rank": rank})
    return tx.tasks.replace(replace(task, held_rank=rank))


class TaskPauses:
    """What people want: that a task stands still, and that it goes on."""

    _store: Store
    _clock: Clock

    async def pause(self, principal: Principal, task_id: str) -> TaskRecord:
        """Its agent stands still from then on; one that has not begun, does not. Conflict for what
        is over, or waits for an answer: that stands still already."""
        principal.require(Scope.TASKS_WRITE)

        def write(tx: Transaction) -> TaskRecord:
            now, task = self._clock.wall(), found(tx, principal.team_id, task_id)
            is_still = task.state is TaskState.WAITING and not task.waits_for
            rank = max(int(rank_of(principal)), task.held_rank)
            if task.paused_by or (is_still and not task.is_resumed):
                return (
                    task
                    if rank == task.held_rank
                    else _raised(tx, principal, task, rank=rank, now=now)
                )
            _check_can_pause(task)
            _audit(tx, principal, task, "task.pause", now=now, after={"paused": True, "rank": rank})
            task = replace(task, held_rank=rank)
            tx.events.append([note(task, EventKind.TASK_PAUSING, now, {"by": principal.actor})])
            if is_still:  # nobody has let it go on yet
                return tx.tasks.replace(replace(task, is_resumed=False))
            return tx.tasks.replace(replace(_parked(task, now), paused_by=principal.actor))

        return await self._store.write(write)

    async def resume(self, principal: Principal, task_id: str) -> TaskRecord:
        """One that was paused goes on. What waits for an answer is answered instead."""
        principal.require(Scope.TASKS_WRITE)

        def write(tx: Transaction) -> TaskRecord:
            now, task = self._clock.wall(), found(tx, principal.team_id, task_id)
            if task.is_resumed or (task.state is TaskState.RUNNING and not task.paused_by):
                return task
            if not task.paused_by:
                _check_can_resume(task)
            check_outranks(principal, Rank(task.held_rank), f"task {task.id} was paused")
            _audit(tx, principal, task, "task.resume", now=now, after={"paused": False})
            task = replace(task, held_rank=0)
            tx.events.append([note(task, EventKind.TASK_RESUMING, now, {"by": principal.actor})])
            if task.paused_by:  # it has not stood still yet, or has not begun
                until = task.lease.until if task.lease.until < _PARKED else 0.0
                lease = replace(task.lease, until=until)
                return tx.tasks.replace(replace(task, paused_by="", lease=lease))
            return tx.tasks.replace(replace(task, is_resumed=True))

        return await self._store.write(write)


def _parked(task: TaskRecord, now: float) -> TaskRecord:
    """One that nobody holds is nobody's to take up, so that it is in no other's way."""
    if task.state is not TaskState.PENDING or task.lease.until >= now:
        return task
    return replace(task, lease=Lease("", task.lease.fence + 1, _PARKED))


def _check_can_pause(task: TaskRecord) -> None:
    if task.is_cancelled:
        raise Conflict(f"task {task.id} is being cancelled", remediation="wait for its end")
    if task.waits_for:
        raise Conflict(
            f"task {task.id} stands still already, and waits for the answer to {task.waits_for}",
            remediation="pause it when that is answered",
        )
    can = task.state in _CAN_PAUSE or task.state is TaskState.WAITING or task.may_run_again
    if not can:
        raise Conflict(
            f"task {task.id} is {task.state}: its agent is done, and there is nothing to pause",
            remediation="cancel it to have it end sooner" if not task.state.is_final else "",
        )


def _check_can_resume(task: TaskRecord) -> None:
    if task.state is TaskState.WAITING and not task.waits_for:
        return
    waits = f", and waits for the answer to {task.waits_for}" if task.waits_for else ""
    raise Conflict(
        f"task {task.id} is {task.state}{waits}",
        remediation=f"`paddock approvals answer {task.waits_for} --say …`"
        if task.waits_for
        else "only one that was paused can be resumed",
    )


def carried_out(tx: Transaction, task: TaskRecord, now: float) -> TaskRecord:
    """It stands still, if somebody still wants that."""
    if not task.paused_by or task.state is not TaskState.RUNNING or task.is_cancelled:
        return task
    still = replace(
        moved(task, TaskState.WAITING, now, detail=f"{_PAUSED_BY}{task.paused_by}"),
        waits_for="",
        waits_rule=PERSON,
        waiting_since=now,
        paused_by="",
        is_resumed=False,
    )
    tx.events.append([state_event(still, now)])
    return still


def paused_again(task: TaskRecord) -> TaskRecord:
    """One that stands still because a person wants that, as before it did: it has to be made to
    once more. Any other as it is."""
    if task.state is not TaskState.WAITING or task.waits_rule != PERSON or task.is_resumed:
        return task
    return replace(task, paused_by=task.detail.removeprefix(_PAUSED_BY))


class Pausing:
    """Between two runs of its agent a task is held still by whoever holds it, where somebody has
    paused it or its agent has asked something: nothing runs that could be."""

    def __init__(self, clock: Clock, wakes: Wakes) -> None:
        self._clock = clock
        self._wakes = wakes

    async def __call__(self, hold: Hold) -> bool:
        """Whether it has stood still, which is over then."""
        talk = hold.task.conversation
        if talk.run and not talk.has_ended:
            return False  # whoever attends to its agent sees to it
        task = await hold.refresh()
        if task.paused_by:
            task = await hold.change(lambda tx, at: carried_out(tx, at, self._clock.wall()))
        if task.state is not TaskState.WAITING or (task.waits_for and task.waits_rule != AGENT):
            return False  # what waits for an answer needs none when its agent has ended
        with self._wakes.of(task.id) as news:
            while not await hold.look(lambda tx, at: _may_go_on(tx, at, self._clock.wall())):
                await news.wait()
                news.clear()
        now = self._clock.wall()

        await hold.change(lambda tx, at: going_on(tx, at, now, by_person=at.is_resumed))
        return True


def _may_go_on(tx: Transaction, task: TaskRecord, now: float) -> bool:
    if task.waits_rule == AGENT:
        return task.is_cancelled or task_asking.is_over(tx, task, now)
    return task.is_resumed or task.is_cancelled


async def ask_no_more(hold: Hold, approvals: Approvals, modes: frozenset[Mode], now: float) -> None:
    """Its agent has ended by itself, so that nobody has to answer for it to go on. What somebody
    has answered before that counts; what nobody has is brought up again where it is still so."""

    def change(tx: Transaction, task: TaskRecord) -> TaskRecord:
        if (allowed := let_go_on(tx, task, modes, now)) is not None:
            return allowed
        refused = answered(tx, task)
        approvals.withdraw(tx, task.waits_for, "its agent has ended", now)
        running = going_on(tx, task, now, by_person=False)
        if refused is None or running.conversation.why_stopped is not None:
            return running
        reason, why = refusal(task, refused)
        talk = replace(running.conversation, why_stopped=reason, stop_detail=why)
        return replace(running, conversation=talk)

    await hold.change(change)
