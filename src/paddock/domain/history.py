"""The course of a run: events as steps that a person can read, without what only repeats."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paddock.domain.event import Event, EventKind

_QUIET_WORDS = frozenset(
    {"heartbeat", "ping", "keepalive", "keep_alive", "metrics", "usage", "progress", "tick"}
)
_VOLATILE = ("n", "at")
"""What differs between two events that tell the same."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened, or several that are the same."""

    kind: str
    first_seq: int
    last_seq: int
    at: float
    until: float
    """When the last of them happened, or when the command of it ended."""
    actor: str
    data: Mapping[str, Any]
    """Of the last one; of a command also how it ended."""
    count: int = 1
    quiet: bool = False
    """It only says that all goes on."""
    after_s: float = 0.0
    """Since the step before it."""


def is_quiet(kind: str) -> bool:
    """Whether events of a kind are periodic: by the last word of it."""
    return kind.rpartition(".")[2] in _QUIET_WORDS


def folded(events: Iterable[Event]) -> list[Step]:
    """The steps, in the order in which they began.

    Between two that say something, what is periodic is told once by kind and source, with its
    count. What repeats the step before is counted there. A command's end belongs to its start.
    """
    steps: list[Step] = []
    periodic: dict[tuple[str, str], int] = {}
    commands: dict[str, int] = {}
    for event in events:
        place = _place(event, steps, periodic, commands)
        if place is not None:
            steps[place] = _joined(steps[place], event)
            continue
        quiet = is_quiet(event.kind)
        if quiet:
            periodic[_who(event)] = len(steps)
        else:
            periodic.clear()
        if event.kind == EventKind.COMMAND_STARTED:
            commands[str(event.data.get("command"))] = len(steps)
        steps.append(_step(event, quiet, steps[-1] if steps else None))
    return steps


def _place(
    event: Event,
    steps: Sequence[Step],
    periodic: Mapping[tuple[str, str], int],
    commands: Mapping[str, int],
) -> int | None:
    """Which step the event belongs to; None when it is one of its own."""
    if is_quiet(event.kind):
        return periodic.get(_who(event))
    if event.kind in (EventKind.COMMAND_STARTED, EventKind.COMMAND_ENDED):
        # Whoever asks twice with one key has started one command.
        return commands.get(str(event.data.get("command")))
    if steps and not steps[-1].quiet and _same(steps[-1], event):
        return len(steps) - 1
    return None


def _same(step: Step, event: Event) -> bool:
    return (step.kind, step.actor, _told(step.data)) == (event.kind, event.actor, _told(event.data))


def _told(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in _VOLATILE}


def _who(event: Event) -> tuple[str, str]:
    return event.kind, str(event.data.get("source", event.actor))


def _joined(step: Step, event: Event) -> Step:
    ends = event.kind == EventKind.COMMAND_ENDED
    data = {**step.data, **event.data} if ends else event.data
    count = step.count if ends else step.count + 1
    return replace(step, last_seq=event.seq, until=event.at, data=data, count=count)


def _step(event: Event, quiet: bool, before: Step | None) -> Step:
    return Step(
        kind=event.kind,
        first_seq=event.seq,
        last_seq=event.seq,
        at=event.at,
        until=event.at,
        actor=event.actor,
        data=event.data,
        quiet=quiet,
        after_s=max(0.0, event.at - before.at) if before else 0.0,
    )


def first_steps(events: Sequence[Event], limit: int) -> tuple[list[Step], int]:
    """At most so many from the beginning, and the number of the last event that is in them."""
    steps = folded(events)
    if len(steps) <= limit:
        return steps, events[-1].seq if events else 0
    # What comes after the cut may have been counted before it: it belongs to the next page.
    cut = steps[limit].first_seq
    return folded(event for event in events if event.seq < cut), cut - 1


def last_steps(events: Sequence[Event], limit: int) -> list[Step]:
    """At most so many from the end."""
    steps = folded(events)
    while len(steps) > limit:
        # What is periodic and was counted before the cut may be a step of its own after it.
        cut = steps[-limit].first_seq
        events = [event for event in events if event.seq >= cut]
        steps = folded(events)
    return steps
