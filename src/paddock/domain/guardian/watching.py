"""Rules over events: what is brought up now, and what was brought up already."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from paddock.domain.agent_event import AgentEvent
from paddock.domain.guardian.history import (
    MOST_DUE,
    MOST_SAID,
    History,
    Intervention,
    Said,
    heard,
)
from paddock.domain.guardian.policy import Act, RuleName
from paddock.domain.guardian.rules import BUILT_IN, Facts, Finding, Rule

_APART_S = 30.0
"""Between two nudges of one rule, whatever they are about: an agent that is told something new
with every call does nothing else any more."""
_STRENGTH = {act: number for number, act in enumerate(Act)}


def watch(
    history: History,
    events: Sequence[AgentEvent],
    facts: Facts,
    rules: Sequence[Rule] = BUILT_IN,
) -> History:
    """With these events, and with what is to be done about them in `due`. No events is a look at
    a time when nothing happened: then the rules judge by the clock and by signs of life."""
    in_words = facts.policy.act(RuleName.REVIEW) is not Act.OFF
    watching = [rule for rule in rules if facts.policy.act(rule.name) is not Act.OFF]
    for event in events or (None,):
        if event is not None:
            history = heard(history, event, in_words=in_words)
        for rule in watching:
            if (found := rule.judge(history, event, facts)) is not None:
                history = brought_up(history, found, facts)
    return history


def brought_up(history: History, found: Finding, facts: Facts) -> History:
    """With an intervention, or with one more reason to wait with it."""
    act = facts.policy.act(found.rule)
    if act is Act.OFF or len(history.due) >= MOST_DUE:
        return history
    key = f"{found.rule} {found.occurrence}"
    before = history.said.get(key)
    if before is not None and _is_settled(before, found, facts):
        return _said(history, key, replace(before, unsaid=before.unsaid + 1))
    act = _stepped_up(act, found, before)
    if act is Act.NUDGE and _too_soon(history.said, found.rule, facts.now):
        return history
    done = Intervention(
        number=history.count + 1,
        rule=found.rule,
        act=act,
        why=_with_count(found.why, before),
        text=found.question or found.text if act is Act.ASK else found.text,
        at=facts.now,
        before={"state": facts.state, **found.before},
        failed=found.failed,
        subject=key,
    )
    times = before.times + 1 if before is not None else 1
    history = _said(history, key, Said(facts.now, times))
    return replace(history, count=done.number, due=(*history.due, done))


def _is_settled(before: Said, found: Finding, facts: Facts) -> bool:
    too_early = facts.now - before.at < facts.policy.cooldown_s
    return before.is_allowed or found.once or too_early


def waiting_for(history: History, rule: str) -> History:
    """A person is asked, or has to let it go on, because of the first of what this rule found."""
    subject = next((each.subject for each in history.due if each.rule == rule), "")
    return replace(history, waits_on=subject)


def let_pass(history: History, *, is_allowed: bool = True) -> History:
    """It goes on. What a person has allowed is brought up no more; what nobody has answered is
    brought up as if it never had been, should it be found again."""
    key, history = history.waits_on, replace(history, waits_on="")
    if key not in history.said:
        return history
    said = {name: each for name, each in history.said.items() if name != key}
    if is_allowed:
        said[key] = replace(history.said[key], is_allowed=True)
    due = tuple(each for each in history.due if each.subject != key)
    return replace(history, said=said, due=due)


def _stepped_up(act: Act, found: Finding, before: Said | None) -> Act:
    if found.failed:
        return Act.NOTE
    if before is not None and act is Act.NUDGE:
        act = Act.ASK  # it was told, and it did not help
    return max(act, found.at_least, key=_STRENGTH.__getitem__)


def _too_soon(said: Mapping[str, Said], rule: str, now: float) -> bool:
    return any(now - each.at < _APART_S for key, each in said.items() if key.startswith(f"{rule} "))


def _with_count(why: str, before: Said | None) -> str:
    if before is None:
        return why
    return f"{why}; said before, and found {before.unsaid + 1} times since"


def _said(history: History, key: str, said: Said) -> History:
    """Bounded: whichever rule has the most to remember forgets its oldest, and what a person let
    pass after all else."""
    everything = {**history.said, key: said}
    if len(everything) > MOST_SAID:
        rules = Counter(name.partition(" ")[0] for name in everything)
        loudest = rules.most_common(1)[0][0]
        its = [name for name in everything if name.startswith(f"{loudest} ") and name != key]
        del everything[min(its, key=lambda name: _worth(everything[name]))]
    return replace(history, said=everything)


def _worth(said: Said) -> tuple[bool, float]:
    return said.is_allowed, said.at


def carried_out(history: History, done: Iterable[int]) -> History:
    """Without what was done."""
    numbers = set(done)
    return replace(history, due=tuple(each for each in history.due if each.number not in numbers))
