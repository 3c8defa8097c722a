"""Over one run of an agent: its signs of life, the guardian, and what is done in its name."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from paddock.domain import vitals as signs
from paddock.domain.agent_event import AgentEvent
from paddock.domain.approval import Approval
from paddock.domain.errors import PaddockError, Unsupported
from paddock.domain.event import EventKind
from paddock.domain.examination import Examined, Look, next_look
from paddock.domain.guardian import Act, Facts, GuardianPolicy, Place, brought_up, history_of, kept
from paddock.domain.guardian.policy import RuleName
from paddock.domain.guardian.rules import still_stuck
from paddock.domain.guardian.watching import let_pass, waiting_for
from paddock.domain.message import MESSAGE_PREFIX, Message, Mode
from paddock.domain.quarantine import in_words, is_too_odd, oddness
from paddock.domain.reason import Reason
from paddock.domain.task import TaskRecord, TaskState, moved
from paddock.domain.vitals import Beat, Measure, Vitals
from paddock.ports.clock import Clock
from paddock.ports.store import Transaction
from paddock.services.approvals import Approvals, TaskQuestion
from paddock.services.guardian import ACTOR, Guardian, Readers, Reviewed
from paddock.services.task_config import TasksConfig
from paddock.services.task_events import message_event, note, state_event
from paddock.services.task_hold import Hold
from paddock.services.task_oddness import odd, signs_of
from paddock.services.transfers import TransferGuest

_LOOK_S = 10.0
_BEHIND_A_DEVICE = 2


@dataclass(frozen=True, slots=True)
class Watching:
    """What watching over tasks takes; the same for all of them."""

    config: TasksConfig
    approvals: Approvals
    readers: Readers
    is_paused: Callable[[TaskRecord], Awaitable[bool]]
    """Whether its sandbox is: then nothing can be seen of its agent, and nothing is wrong."""
    examine: Callable[[TaskRecord, str], Awaitable[Examined]]
    """What can be found out about one that is stuck."""
    set_aside: Callable[[TaskRecord, str], Awaitable[object]]
    """Its sandbox, because what it does is too odd."""


class Hands(Protocol):
    """What can be done with a run."""

    @property
    def modes(self) -> frozenset[Mode]: ...

    async def stop(self, why: Reason | None, detail: str = "") -> None: ...
    async def begin_again(self, why: str) -> None: ...
    async def hold_still(self) -> None: ...
    async def go_on(self) -> None: ...


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
        acting = _Acting(parts.approvals, clock, hold, hands)
        timeout_s = parts.config.guardian.ask_timeout_s
        self._guardian = Guardian(clock, acting, ask_timeout_s=timeout_s, readers=parts.readers)

    @property
    def every_s(self) -> float:
        return self._parts.config.health.beat_every_s

    def judged(self, task: TaskRecord, events: Sequence[AgentEvent]) -> TaskRecord:
        """With what its guardian makes of these events. Pure: it is written with them."""
        now = self._clock.wall()
        vitals = signs.spoke(task.vitals or signs.begun(now), now)
        task = replace(task, vitals=vitals)
        return replace(task, watch=self._guardian.judge(task, events, self._facts(task, now)))

    async def carry_out(self) -> None:
        """What the guardian wants done; told and audited, also where it could not be."""
        # One after the other, and none while somebody is asked: each answer counts.
        while (due := self._guardian.due(self._hold.task)) and self._may_act:
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
        if self._hold.task.state is not TaskState.RUNNING:
            return
        if await self._parts.is_paused(self._hold.task):
            began = signs.begun(self._clock.wall())
            await self._hold.change(lambda _tx, task: replace(task, vitals=began))
            return
        now = self._clock.wall()
        sample = await _sampled(guest, now, self._hold.task.vitals)

        def change(_tx: Transaction, task: TaskRecord) -> TaskRecord:
            vitals = task.vitals or signs.begun(now)
            if sample is not None:
                vitals = signs.felt(vitals, sample, self._parts.config.health)
            task = replace(task, vitals=vitals)
            watch = self._guardian.judge(task, (), self._facts(task, now))
            return replace(task, watch=watch)

        await self._hold.change(change)
        await self._find_out()
        await self._weigh()
        await self.carry_out()
        await self._review_beside()
        await self._treat()

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
        if task.vitals is None or task.state is not TaskState.RUNNING:
            return
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
            policy=policy_of(task, self._parts.config),
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
            approval = _answered(tx, task)
            goes_on = task.is_resumed or (approval is not None and approval.state.is_allowed)
            if not goes_on:
                return task
            if approval is not None and approval.note:
                _send(tx, task, approval, self._hands.modes, now=now)
            running = going_on(task, now, extends=True)
            tx.events.append([state_event(running, now)])
            return running

        task = await self._hold.change(change)
        if task.state is TaskState.RUNNING:
            await self._hands.go_on()
            await self.carry_out()
            return
        if task.conversation.stopping_since is not None:
            return  # it was refused before
        refused = await self._hold.look(_answered)
        if refused is not None:
            reason = Reason.BUDGET if task.waits_rule == RuleName.BUDGET_GONE else Reason.USER
            note = f": {refused.note}" if refused.note else ""
            await self._hands.go_on()
            await self._hands.stop(reason, f"{refused.title} — {refused.state}{note}")


class _Acting:
    """The guardian's `Acting`, for the task that is held; each deed is done once."""

    def __init__(self, approvals: Approvals, clock: Clock, hold: Hold, hands: Hands) -> None:
        self._approvals = approvals
        self._clock = clock
        self._hold = hold
        self._hands = hands

    async def nudge(self, task_id: str, text: str, *, once: str) -> Mapping[str, Any]:
        mode = _heard_by(self._hands.modes)
        if mode is None:
            raise Unsupported(f"{self._hold.task.agent} hears nothing while it works")
        message_id = f"{MESSAGE_PREFIX}_{task_id.partition('_')[2]}.{once}"
        now = self._clock.wall()

        def change(tx: Transaction, task: TaskRecord) -> TaskRecord:
            if tx.messages.get(task.team_id, message_id) is None:
                _post(tx, Message(message_id, task.team_id, task.id, text, mode, ACTOR, now))
            return task

        await self._hold.change(change)
        return {"message": message_id, "mode": mode}

    async def ask(
        self, task_id: str, question: str, detail: Mapping[str, Any], *, expires_s: float, once: str
    ) -> Mapping[str, Any]:
        rule, why = str(detail.get("rule", "")), str(detail.get("why", ""))

        def change(tx: Transaction, task: TaskRecord) -> TaskRecord:
            wanted = TaskQuestion(
                task_id=task_id,
                sandbox_id=task.sandbox_id,
                team_id=task.team_id,
                title=question,
                why=why,
                detail=dict(detail),
                expires_s=expires_s,
                what=once,
            )
            asked = self._approvals.ask_task_in(tx, wanted)
            return self._waiting(tx, task, asked.id, rule=rule, why=why)

        return await self._wait(change)

    async def pause(self, task_id: str, why: str, *, rule: str, once: str) -> Mapping[str, Any]:
        return await self._wait(lambda tx, task: self._waiting(tx, task, "", rule=rule, why=why))

    async def stop(self, task_id: str, why: str, *, once: str) -> Mapping[str, Any]:
        await self._hands.stop(Reason.EVICTED, why)
        return {"stopping": True}

    async def _wait(
        self, change: Callable[[Transaction, TaskRecord], TaskRecord]
    ) -> Mapping[str, Any]:
        task = await self._hold.change(change)
        await self._hands.hold_still()
        return {"state": task.state, "approval": task.waits_for}

    def _waiting(
        self, tx: Transaction, task: TaskRecord, approval: str, *, rule: str, why: str
    ) -> TaskRecord:
        if task.state is not TaskState.RUNNING:
            return task  # it waits already: one thing after the other
        now = self._clock.wall()
        waiting = replace(
            moved(task, TaskState.WAITING, now, detail=why),
            waits_for=approval,
            waits_rule=rule,
            waiting_since=now,
            watch=kept(waiting_for(history_of(task.watch), rule)),
        )
        tx.events.append([state_event(waiting, now)])
        return waiting


def policy_of(task: TaskRecord, config: TasksConfig) -> GuardianPolicy:
    """What was said for the task, and the installation's word for the rest."""
    return config.guardian.policy().of_task(task.wish.guardian, task.wish.scope)


def _heard_by(modes: frozenset[Mode]) -> Mode | None:
    return next((each for each in (Mode.NOW, Mode.TURN) if each in modes), None)


def _answered(tx: Transaction, task: TaskRecord) -> Approval | None:
    found = tx.approvals.get(task.team_id, task.waits_for) if task.waits_for else None
    return found if found is not None and not found.is_pending else None


def _send(
    tx: Transaction, task: TaskRecord, approval: Approval, modes: frozenset[Mode], *, now: float
) -> None:
    """What somebody has answered in words, the agent reads."""
    mode, message_id = _heard_by(modes), f"{MESSAGE_PREFIX}_{approval.id.partition('_')[2]}"
    if mode is not None and tx.messages.get(task.team_id, message_id) is None:
        text, actor = approval.note, approval.answered_by
        _post(tx, Message(message_id, task.team_id, task.id, text, mode, actor, now))


def _post(tx: Transaction, message: Message) -> None:
    tx.messages.add(message)
    tx.events.append([message_event(message.task_id, message, message.queued_at)])


def going_on(task: TaskRecord, now: float, *, extends: bool) -> TaskRecord:
    """At work again; what it has waited is not held against it."""
    waited = now - (task.waiting_since or now)
    more = 1 if extends and task.waits_rule == RuleName.BUDGET_GONE else 0
    by_person = extends or task.is_resumed
    history = let_pass(history_of(task.watch), is_allowed=by_person)
    return replace(
        moved(task, TaskState.RUNNING, now),
        waits_for="",
        waits_rule="",
        waiting_since=None,
        is_resumed=False,
        held_rank=0,
        deadline=task.deadline + waited if task.deadline is not None else None,
        extensions=task.extensions + more,
        vitals=signs.begun(now),
        watch=kept(history),
    )


async def _sampled(guest: TransferGuest, now: float, before: Vitals | None) -> Beat | None:
    """None when nobody answers: that is a beat that never came."""
    with suppress(PaddockError):
        used = await guest.usage()
        seen = await guest.exec(("cat", "/proc/net/dev"), timeout=_LOOK_S)
        return Beat(
            seq=(before.seq if before else 0) + 1,
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
