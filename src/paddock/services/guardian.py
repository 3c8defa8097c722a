"""The guardian at work: what rules have found is carried out, told and audited.

Judging is pure, and its outcome is kept with the task in the same transaction as the events that it
judged. Carrying out comes after, and again after a crash: so everything that is done has a number,
and is done once. Nothing here fails silently: what could not be done is an event of its own.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from paddock.domain.agent_event import AgentEvent
from paddock.domain.audit import AuditEntry
from paddock.domain.errors import PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.guardian import (
    BUILT_IN,
    Act,
    Facts,
    Finding,
    History,
    Intervention,
    Rule,
    brought_up,
    history_of,
    kept,
    watch,
)
from paddock.domain.guardian.policy import RuleName
from paddock.domain.task import TaskRecord
from paddock.ports.clock import Clock
from paddock.ports.reviewer import Review, Reviewer, Standing, Transcript
from paddock.ports.store import Transaction

ACTOR = "paddock/guardian"
MOST_TRIES = 3
_LONGEST_PROMPT = 4000
_TOLD = {
    Act.NOTE: EventKind.GUARDIAN_NOTED,
    Act.NUDGE: EventKind.GUARDIAN_NUDGED,
    Act.ASK: EventKind.GUARDIAN_ASKED,
    Act.PAUSE: EventKind.GUARDIAN_PAUSED,
    Act.STOP: EventKind.GUARDIAN_STOPPED,
}


class Acting(Protocol):
    """What can be done about a task. Each says how things are afterwards, for the records.

    `once` is the same whenever the same is asked for again, after a crash too: it is done once.
    """

    async def nudge(self, task_id: str, text: str, *, once: str) -> Mapping[str, Any]:
        """The agent is told, as soon as it can be."""
        ...

    async def ask(
        self, task_id: str, question: str, detail: Mapping[str, Any], *, expires_s: float, once: str
    ) -> Mapping[str, Any]:
        """The agent is paused and a person asked; the task waits for the answer."""
        ...

    async def pause(self, task_id: str, why: str, *, rule: str, once: str) -> Mapping[str, Any]:
        """The agent is paused until somebody resumes the task."""
        ...

    async def stop(self, task_id: str, why: str, *, once: str) -> Mapping[str, Any]:
        """The task fails, for this reason; its sandbox is kept."""
        ...


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one intervention."""

    intervention: Intervention
    after: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    instead: Intervention | None = None
    """What is to be done now that this could not be; None when it is over."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of all that was due."""

    done: tuple[Done, ...]
    at: float

    def write(self, tx: Transaction, task: TaskRecord) -> TaskRecord:
        """Told and audited, and off the task's list; what was found meanwhile stays on it."""
        history = history_of(task.watch)
        ended = {each.intervention.number: each.instead for each in self.done}
        due = (ended.get(each.number, each) for each in history.due)
        for each in self.done:
            kind, data = _told(each)
            tx.events.append([Event(task.team_id, kind, task.id, self.at, data, ACTOR)])
            tx.audit.append([AuditEntry(task.team_id, ACTOR, kind, task.id, self.at, data)])
        left = tuple(each for each in due if each is not None)
        return replace(task, watch=kept(replace(history, due=left)))


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What a reviewer said, or that it said nothing."""

    found: Finding | None
    facts: Facts
    heard: int

    def write(self, task: TaskRecord) -> TaskRecord:
        history = history_of(task.watch)
        history = replace(history, reviewed_at=self.facts.now, reviewed=self.heard)
        if self.found is not None:
            history = brought_up(history, self.found, self.facts)
        return replace(task, watch=kept(history))


class Guardian:
    """The same for every task. What it knows of each is in the task's record."""

    def __init__(
        self,
        clock: Clock,
        acting: Acting,
        *,
        rules: Sequence[Rule] = BUILT_IN,
        ask_timeout_s: float = 86_400.0,
        readers: "Readers | None" = None,
    ) -> None:
        self._clock = clock
        self._acting = acting
        self._rules = tuple(_Safe(rule) for rule in rules)
        self._ask_timeout_s = ask_timeout_s
        self._readers = readers or Readers()

    def judge(
        self, task: TaskRecord, events: Sequence[AgentEvent], facts: Facts
    ) -> Mapping[str, Any]:
        """What the task's `watch` is after these events; no events is a look at the clock and at
        signs of life. Pure: it belongs into the transaction that has the events."""
        return kept(watch(history_of(task.watch), events, facts, self._rules))

    @staticmethod
    def due(task: TaskRecord) -> tuple[Intervention, ...]:
        """What is still to be carried out."""
        return history_of(task.watch).due

    async def carry_out(self, task: TaskRecord) -> Outcome:
        """Everything that is due, in order; its outcome is to be written. Raises nothing that
        `acting` raises: what could not be done is in the outcome, and tried again or passed on."""
        done = [await self._do(task, each) for each in self.due(task)]
        return Outcome(tuple(done), self._clock.wall())

    async def _do(self, task: TaskRecord, wanted: Intervention) -> Done:
        try:
            return Done(wanted, await self._act(task.id, wanted))
        except PaddockError as error:
            why, again = error.message, error.retryable
        except Exception as error:  # noqa: BLE001 - whatever it was, it is told
            why, again = f"{type(error).__name__}: {error}"[:500], False
        return Done(wanted, error=why, instead=_instead(wanted, again=again))

    async def _act(self, task_id: str, wanted: Intervention) -> Mapping[str, Any]:
        once = f"guardian-{wanted.number}"
        match wanted.act:
            case Act.NUDGE:
                return await self._acting.nudge(task_id, wanted.text, once=once)
            case Act.ASK:
                detail = {"rule": wanted.rule, "why": wanted.why, **wanted.before}
                return await self._acting.ask(
                    task_id, wanted.text, detail, expires_s=self._ask_timeout_s, once=once
                )
            case Act.PAUSE:
                return await self._acting.pause(task_id, wanted.why, rule=wanted.rule, once=once)
            case Act.STOP:
                return await self._acting.stop(task_id, wanted.why, once=once)
        return {}

    async def review(self, task: TaskRecord, facts: Facts) -> Reviewed | None:
        """What a reader makes of the task; None when it is not its turn. It takes no longer than
        the reader is given, and is best run beside what else happens to the task."""
        history = history_of(task.watch)
        if not self._readers.is_due(history, facts):
            return None
        transcript = Transcript(task.wish.prompt[:_LONGEST_PROMPT], history.lines)
        found = await self._readers.read(transcript)
        return Reviewed(found, replace(facts, now=self._clock.wall()), history.heard)


class Readers:
    """Who may read along, how often and how many tasks at once."""

    def __init__(
        self,
        reviewer: Reviewer | None = None,
        *,
        every_s: float = 300.0,
        timeout_s: float = 30.0,
        most: int = 4,
    ) -> None:
        self._reviewer = reviewer
        self._every_s = every_s
        self._timeout_s = timeout_s
        self._room = asyncio.Semaphore(most)

    def is_due(self, history: History, facts: Facts) -> bool:
        return (
            facts.policy.act(RuleName.REVIEW) is not Act.OFF
            and history.heard > history.reviewed
            and facts.now - history.reviewed_at >= self._every_s
        )

    async def read(self, transcript: Transcript) -> Finding | None:
        """What is to be brought up, also when nobody could tell; None for a task on its way."""
        if self._reviewer is None:
            return _unread("no reviewer is set: [tasks.reviewer] has no url")
        try:
            async with asyncio.timeout(self._timeout_s), self._room:
                review = await self._reviewer.review(transcript)
        except TimeoutError:
            return _unread(f"the reviewer gave no answer within {self._timeout_s:g} s")
        except PaddockError as error:
            return _unread(error.message)
        except Exception as error:  # noqa: BLE001 - whatever it was, it is told
            return _unread(f"{type(error).__name__}: {error}"[:500])
        return _found_by(review)


class _Safe:
    """A rule whose own failure is a finding: it stops neither the task nor the other rules."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.name = rule.name

    def judge(self, seen: History, event: AgentEvent | None, facts: Facts) -> Finding | None:
        try:
            found = self._rule.judge(seen, event, facts)
            return None if found is None else self._checked(found)
        except Exception as error:  # noqa: BLE001 - rules may be anybody's
            kind = type(error).__name__
            why = f"the rule {self.name} failed: {kind}: {error}"[:500]
            return Finding(self.name, f"failed {kind}", why, "", failed=True)

    def _checked(self, found: Finding) -> Finding:
        """Under its own name, which policies go by, and such as can be kept."""
        if not isinstance(found, Finding):
            raise TypeError(f"it returned {type(found).__name__}, and neither a Finding nor None")
        json.dumps(asdict(found))
        return replace(found, rule=self.name)


def _found_by(review: Review) -> Finding | None:
    if review.standing is Standing.ON_TRACK:
        return None
    if review.standing is Standing.UNKNOWN:
        return _unread(f"the reviewer cannot tell: {review.why}"[:500])
    advice = review.advice or review.why
    return Finding(
        RuleName.REVIEW,
        occurrence=review.why[:100],
        why=f"a reviewer says: {review.why}"[:500],
        text=f"Somebody who reads along says: {review.why} {advice}".strip()[:2000],
        question=f"A reviewer says: {review.why} Shall the agent go on?"[:2000],
    )


def _unread(why: str) -> Finding:
    return Finding(RuleName.REVIEW, f"unread {why[:80]}", why, "", failed=True)


def _instead(wanted: Intervention, *, again: bool) -> Intervention | None:
    """A few more tries; then a person hears of what the agent could not be told, and an agent that
    nobody can be asked about stands still until somebody looks."""
    if again and wanted.tries + 1 < MOST_TRIES:
        return replace(wanted, tries=wanted.tries + 1)
    if wanted.act is Act.NUDGE:
        return replace(wanted, act=Act.ASK, tries=0)
    return replace(wanted, act=Act.PAUSE, tries=0) if wanted.act is Act.ASK else None


def _told(done: Done) -> tuple[EventKind, dict[str, Any]]:
    wanted = done.intervention
    data: dict[str, Any] = {
        "number": wanted.number,
        "rule": wanted.rule,
        "act": wanted.act,
        "why": wanted.why,
        "before": dict(wanted.before),
        "after": dict(done.after),
    }
    if wanted.act not in (Act.NOTE, Act.STOP):
        data["text"] = wanted.text
    if wanted.failed:
        return EventKind.GUARDIAN_FAILED, data
    if not done.error:
        return _TOLD[wanted.act], data
    then = f"{done.instead.act} instead, or again" if done.instead else "it is given up"
    return EventKind.GUARDIAN_FAILED, {**data, "error": done.error, "then": then}
