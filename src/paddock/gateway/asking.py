"""Connections that are held while somebody is asked whether they may be made.

Bounded in every way, since a hostile program decides what is asked for: so many places, so many
connections, so many bytes of each, for so long. Nothing is looked up before the answer.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from paddock.domain.egress import asking
from paddock.domain.egress.rule import Rule, parse

MOST_PLACES = 16
MOST_HELD = 64
MOST_BYTES = 16384
"""Of one connection; who sends more is not read for now."""
_MOST_ANSWERS = 256
_SLACK_S = 5.0
"""The control plane is who ends it in time; this is for when there is none."""
_SILENCE_S = 5.0
_NO_RULE = "no rule allows it"

Place = tuple[str, int]


class Waiter(Protocol):
    """A connection that is held."""

    def settled(self) -> bool:
        """Something has changed: judge it anew. Whether it is held all the same."""


@dataclass(slots=True)
class _Question:
    timer: asyncio.TimerHandle
    attempts: int = 0
    is_told: bool = False
    held: set[Waiter] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Answer:
    allowed: bool
    why: str
    until: float


@dataclass(frozen=True, slots=True)
class Question:
    """A place, as it is told."""

    place: Place
    attempts: int
    connections: int


class Asking:
    """What one sandbox asks for, and what it was answered lately."""

    def __init__(
        self,
        granted: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
        *,
        slack_s: float = _SLACK_S,
    ) -> None:
        self._granted = granted
        self._now = now
        self._slack_s = slack_s
        self.hold_s = 0.0
        """0 while nobody is to be asked."""
        self._questions: dict[Place, _Question] = {}
        self._answers: dict[Place, _Answer] = {}
        self.grants: tuple[Rule, ...] = ()
        """What was allowed for a while. They come after all rules, so a denial outweighs them."""

    @property
    def held(self) -> int:
        return sum(len(question.held) for question in self._questions.values())

    def hold(self, waiter: Waiter, place: Place) -> str:
        """Empty when it is held, to be told when something changes; otherwise why it is not."""
        answer = self._answers.get(place)
        if answer is not None and answer.until > self._now():
            return answer.why
        question = self._questions.get(place)
        if question is None:
            if len(self._questions) >= MOST_PLACES:
                return f"{_NO_RULE}, and {MOST_PLACES} other places are being asked for already"
            question = self._questions[place] = _Question(self._timer(place))
        if waiter not in question.held:
            if self.held >= MOST_HELD:
                return f"{_NO_RULE}, and {MOST_HELD} connections wait for an answer already"
            question.attempts += 1
            question.held.add(waiter)
        return ""

    def _timer(self, place: Place) -> asyncio.TimerHandle:
        wait_s = self.hold_s + self._slack_s
        why = f"nobody has answered for {self.hold_s:.0f} s"
        loop = asyncio.get_running_loop()
        return loop.call_later(wait_s, self._expire, place, why)

    def _expire(self, place: Place, why: str) -> None:
        self.settle(place, allowed=False, why=why, for_s=_SILENCE_S)

    def gone(self, waiter: Waiter, place: Place) -> None:
        """It has gone, or goes on."""
        question = self._questions.get(place)
        if question is not None:
            question.held.discard(waiter)
            self._drop_if_over(place, question)

    def _drop_if_over(self, place: Place, question: _Question) -> None:
        """Who gave up at once is told of all the same."""
        if not question.held and question.is_told and not question.attempts:
            question.timer.cancel()
            del self._questions[place]

    def told(self) -> list[Question]:
        """All that wait; the attempts are those since the last time."""
        found = []
        for place, question in list(self._questions.items()):
            found.append(Question(place, question.attempts, len(question.held)))
            question.attempts, question.is_told = 0, True
            self._drop_if_over(place, question)
        return found

    def settle(self, place: Place, *, allowed: bool, why: str, for_s: float) -> None:
        now = self._now()
        self._answers = {each: a for each, a in self._answers.items() if a.until > now}
        if len(self._answers) >= _MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]
        self._answers[place] = _Answer(allowed, why, now + for_s)
        self._grant()
        if allowed:
            asyncio.get_running_loop().call_later(for_s, self._grant)
        question = self._questions.pop(place, None)
        if question is not None:
            question.timer.cancel()
            for waiter in question.held:
                waiter.settled()

    def _grant(self) -> None:
        now = self._now()
        self.grants = tuple(
            parse(asking.rule_for(*place))
            for place, answer in self._answers.items()
            if answer.allowed and answer.until > now
        )
        self._granted()

    def source_of(self, rule: Rule) -> str:
        """Whose answer it was that allowed it."""
        found = (
            answer.why
            for place, answer in self._answers.items()
            if answer.allowed and asking.rule_for(*place) == rule.text
        )
        return next(found, "")

    def reconsider(self) -> None:
        """The rules have changed: who is allowed now goes on, who is not asked for is refused."""
        for place, question in list(self._questions.items()):
            released = {waiter for waiter in list(question.held) if not waiter.settled()}
            question.held -= released
            if released and not question.held and self._questions.get(place) is question:
                question.timer.cancel()  # the rules have answered it
                del self._questions[place]

    def close(self) -> None:
        for question in self._questions.values():
            question.timer.cancel()
        self._questions.clear()
