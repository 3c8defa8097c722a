"""Over one run of an agent: its signs of life, the guardian, and what is done in its name."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from paddock.domain import vitals as signs
from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.errors import PaddockError
from paddock.domain.event import EventKind
from paddock.domain.examination import Examined, Look, next_look
from paddock.domain.guardian import (
    Act,
    Facts,
    GuardianPolicy,
    Place,
    Rule,
    brought_up,
    history_of,
    kept,
)
from paddock.domain.guardian.policy import RuleName
from paddock.domain.guardian.rules import is_step, still_stuck
from paddock.domain.quarantine import in_words, is_too_odd, oddness
from paddock.domain.reason import Reason
from paddock.domain.task import TaskRecord, TaskState
from paddock.domain.vitals import Beat, Measure, Thresholds
from paddock.ports.clock import Clock
from paddock.ports.store import Transaction
from paddock.services.approvals import Approvals
from paddock.services.guardian import Guardian, Readers, Reviewed
from paddock.services.task_acting import Hands, TaskActing, answered, let_go_on, refusal
from paddock.services.task_config import TasksConfig
from paddock.services.task_events import note
from paddock.services.task_hold import Hold
from paddock.services.task_oddness import odd, signs_of
from paddock.services.transfers import TransferGuest

_LONGEST_LOOK_S = 10.0
_BEHIND_A_DEVICE = 2


@dataclass(frozen=True, slots=True)
class Watching:
    """What watching over tasks takes; the same for all of them."""

    config: TasksConfig
    approvals: Approvals
    readers: Readers
    rules: Sequence[Rule]
    policy: GuardianPolicy
    """Of a task that says nothing of the guardian."""
    is_paused: Callable[[TaskRecord], Awaitable[bool]]
    """Whether its sandbox is: then nothing can be seen of its agent, and nothing is wrong."""
    is_set_aside: Callable[[TaskRecord], Awaitable[bool]]
    """Nobody goes into its sandbox, also to end its agent."""
    examine: Callable[[TaskRecord, str], Awaitable[Examined]]
    """What can be found out about one that is stuck."""
    set_aside: Callable[[TaskRecord, str], Awaitable[object]]
    """Its sandbox, because what it does is too odd."""


class Watch:
    """Over the run of the task that is held."""

    def __init__(
        self, parts: Watching, clock: Clock, hold: Hold, *, hands: Hands, home: str
    ) -> None:
        self._parts = parts
        self._clock = clock
        self._hold = hold
        self._hands = hands
        self._home = home
        self._reading: asyncio.Task[Reviewed | None] | None = None
        acting = TaskActing(parts.approvals, clock, hold, hands)
        self._guardian = Guardian(
            clock,
            acting,
            rules=parts.rules,
            ask_timeout_s=parts.config.guardian.ask_timeout_s,
            readers=parts.readers,
        )

    @property
    def every_s(self) -> float:
        return self._parts.config.health.beat_every_s

    def judged(self, task: TaskRecord, events: Sequence[AgentEvent]) -> TaskRecord:
        """With what its guardian makes of these events. Pure: it is written with them."""
        now = self._clock.wall()
        vitals = signs.spoke(task.vitals or signs.begun(now), now)
        task = replace(task, vitals=vitals)
        return replace(task, watch=self._guardian.judge(task, events, self._facts(task, now)))

    async def carry_out(self, last: AgentEvent | None = None) -> None:
        """What the guardian wants done; told and audited, also where it could not be. `last` is
        what the agent did last."""
        # One after the other, and none while somebody is asked: each answer counts.
        while (due := self._guardian.due(self._hold.task)) and self._may_act:
            if due[0].rule == RuleName.BUDGET_GONE and _may_be_done(last):
                return
            first = replace(history_of(self._hold.task.watch), due=due[:1])
            outcome = await self._guardian.carry_out(replace(self._hold.task, watch=kept(first)))
            await self._hold.change(outcome.write)

    @property
    def _may_act(self) -> bool:
        task = self._hold.task
        has_ended = task.conversation.has_ended or task.conversation.is_over
        return task.state is TaskState.RUNNING and not has_ended

    async def beat(self, guest: TransferGuest) -> None:
        """A look at how the agent does when it says nothing."""
        if self._hold.task.state is not TaskState.RUNNING and not self._asks_if_stuck:
            return
        if await self._parts.is_paused(self._hold.task):
            began = signs.begun(self._clock.wall())
            await self._hold.change(lambda _tx, task: replace(task, vitals=began))
            return
        health = self._parts.config.health
        # An answer that takes longer than a heartbeat interval counts as missed anyway.
        look_s = min(_LONGEST_LOOK_S, health.beat_lasts_s)
        sample = await _sampled(guest, self._hold.task, self._clock.wall(), look_s)
        now = self._clock.wall()

        def change(tx: Transaction, task: TaskRecord) -> TaskRecord:
            vitals = task.vitals or signs.begun(now)
            vitals = signs.felt(vitals, sample, health) if sample else signs.missed(vitals)
            task = _with_pulse(tx, replace(task, vitals=vitals), health, now)
            if task.state is not TaskState.RUNNING:
                return task
            watch = self._guardian.judge(task, (), self._facts(task, now))
            return replace(task, watch=watch)

        await self._hold.change(change)
        if self._hold.task.state is TaskState.RUNNING:
            await self._look_after()
        await self._treat()

    @property
    def _asks_if_stuck(self) -> bool:
        """Somebody is asked what to do about the silence of its agent, which lasts: when nobody
        answers, the next step is taken. Where looks have led to nothing, a person decides."""
        task = self._hold.task
        is_asked = task.state is TaskState.WAITING and bool(task.waits_for)
        return is_asked and is_step(history_of(task.watch).waits_on)

    async def _look_after(self) -> None:
        await self._find_out()
        await self._weigh()
        await self.carry_out()
        await self._review_beside()

    async def _find_out(self) -> None:
        """Why it is stuck, before anything is done about it; in the end a person is asked."""
        task, now = self._hold.task, self._clock.wall()
        look, why = next_look(task, now, self._parts.config.health)
        if look is Look.EXAMINE:
            found = await self._parts.examine(task, why)
            event = note(task, EventKind.TASK_DIAGNOSIS, now, found.data)
            looked = (*task.diagnoses, now)
            await self._hold.change(lambda _tx, task: replace(task, diagnoses=looked), event)
        elif look is Look.ASK:
            facts = self._facts(task, now)
            found_again = still_stuck(len(task.diagnoses), why)
            asked = kept(brought_up(history_of(task.watch), found_again, facts))
            await self._hold.change(lambda _tx, task: replace(task, watch=asked))

    async def _weigh(self) -> None:
        """How odd it is, now and then; what was too odd for several readings is brought up."""
        config, task, now = self._parts.config.odd, self._hold.task, self._clock.wall()
        facts = self._facts(task, now)
        is_due = config.every_s and now - task.weighed_at >= config.every_s
        if not is_due or facts.policy.act(RuleName.ODD) is Act.OFF:
            return
        signs = await self._hold.look(lambda tx, task: signs_of(tx, task, now, config.window_s))
        score = oddness(signs)
        readings = (*task.oddness, score)[-config.readings :]
        too_odd, watch = is_too_odd(readings, config), task.watch
        if too_odd and not config.quarantine:
            watch = kept(brought_up(history_of(watch), odd(signs, score), facts))
        await self._hold.change(
            lambda _tx, task: replace(task, oddness=readings, weighed_at=now, watch=watch)
        )
        if too_odd and config.quarantine:
            await self._parts.set_aside(task, f"{in_words(signs)} ({score:.2f})")

    async def _review_beside(self) -> None:
        """A reader takes its time; what it said is taken up with a later beat."""
        if self._reading is None:
            facts = self._facts(self._hold.task, self._clock.wall())
            review = self._guardian.review(self._hold.task, facts)
            self._reading = asyncio.create_task(review, name=f"review {self._hold.task.id}")
            await asyncio.sleep(0)
        if self._reading.done():
            reviewed, self._reading = self._reading.result(), None
            if reviewed is not None:
                await self._hold.change(lambda _tx, task: reviewed.write(task))
                await self.carry_out()

    async def aclose(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _treat(self) -> None:
        """An agent that stands still is started again, or given up."""
        task, now = self._hold.task, self._clock.wall()
        if task.vitals is None or (task.state is not TaskState.RUNNING and not self._asks_if_stuck):
            return
        if task.conversation.must_stop or task.conversation.stopping_since is not None:
            return  # asked once more, it would have as long again
        found = signs.treat(task.vitals, task.restarts, now, self._parts.config.health)
        if found is None or found.wait_s:
            return
        if found.measure is Measure.RESTART:
            await self._hands.begin_again(found.why)
        elif found.measure is Measure.FAIL:
            await self._hands.stop(Reason.IDLE, found.why)

    def _facts(self, task: TaskRecord, now: float) -> Facts:
        return Facts(
            now=now,
            state=task.state,
            policy=self._parts.policy.of_task(task.wish.guardian, task.wish.scope),
            place=Place(task.directory, self._home),
            budget=task.wish.budget.times(1 + task.extensions),
            spent=task.used,
            vitals=task.vitals,
            thresholds=self._parts.config.health,
        )

    async def answer(self) -> None:
        """What somebody has said to what the task waits for, if anybody has."""
        task, now = await self._hold.refresh(), self._clock.wall()
        if task.state is not TaskState.WAITING or task.is_cancelled:
            return

        def change(tx: Transaction, task: TaskRecord) -> TaskRecord:
            return let_go_on(tx, task, self._hands.modes, now) or task

        task = await self._hold.change(change)
        if task.state is TaskState.RUNNING:
            await self._hands.go_on()
            await self.carry_out()
            return
        if task.conversation.stopping_since is not None:
            return  # it was refused before
        refused = await self._hold.look(answered)
        if refused is not None:
            await self._hands.go_on()
            await self._hands.stop(*refusal(task, refused))


def _may_be_done(last: AgentEvent | None) -> bool:
    """Many agents say what they used right before they say that they are done. Stopped between the
    two, a finished one would wait for an answer that it does not need. It is asked about with the
    next thing that it does, or with the next heartbeat."""
    return last is not None and last.kind is AgentEventKind.USAGE


def _with_pulse(tx: Transaction, task: TaskRecord, health: Thresholds, now: float) -> TaskRecord:
    """Told whenever it becomes another, so that one missing sign warns before three restart it."""
    vitals = task.vitals or signs.begun(now)
    pulse = signs.pulse(vitals, now, health)
    if pulse is vitals.pulse:
        return task
    silent_s = round(max(0.0, now - vitals.beat_at), 1)
    data = {"pulse": pulse, "beat": vitals.seq, "missing": vitals.missing, "silent_s": silent_s}
    tx.events.append([note(task, EventKind.TASK_PULSE, now, data)])
    return replace(task, vitals=replace(vitals, pulse=pulse))


async def _sampled(
    guest: TransferGuest, task: TaskRecord, now: float, look_s: float
) -> Beat | None:
    """None when nobody answers, or not in time: that is a beat that never came."""
    with suppress(PaddockError, TimeoutError):
        async with asyncio.timeout(look_s):
            await guest.runs.get(task.conversation.run_key(task.id))
            used = await guest.usage()
            seen = await guest.exec(("cat", "/proc/net/dev"), timeout=look_s)
        return Beat(
            seq=(task.vitals.seq if task.vitals else 0) + 1,
            at=now,
            cpu_s=used.cpu_seconds,
            network_bytes=_network(seen.stdout),
        )
    return None


def _network(table: bytes) -> int | None:
    """All that went in and out, on every device: a sandbox reaches its gateway by loopback."""
    total = 0
    for line in table.decode("ascii", "replace").splitlines()[_BEHIND_A_DEVICE:]:
        counters = line.partition(":")[2].split()
        if len(counters) > 8 and counters[0].isdigit() and counters[8].isdigit():
            total += int(counters[0]) + int(counters[8])
    return total or None
