"""Whose turn it is, when more tasks wait than may run."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paddock.domain.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """How many tasks may be at work at once."""

    team: int = 10
    provider: int = 50

    def __post_init__(self) -> None:
        if self.team < 1 or self.provider < 1:
            raise InvalidRequest(
                f"{min(self.team, self.provider)} tasks at once would be none at all",
                remediation="let at least one run",
            )


@dataclass(frozen=True, slots=True)
class Waiting:
    """A task that could begin, were there room for it."""

    id: str
    team: str
    provider: str
    sandbox: str = ""
    """The one that it works in, if that is known: tasks in one sandbox take turns."""


def turns(
    waiting: Iterable[Waiting],
    active: Mapping[tuple[str, str], int],
    busy: Iterable[str],
    limits: TaskLimits,
) -> list[str]:
    """Those that may begin now, in order. The team with the fewest at work comes first, so that
    one which has sent a thousand does not keep the others waiting; within a team, as they came."""
    teams: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for (team, place), count in active.items():
        teams[team] += count
        places[place] += count
    sandboxes = set(busy)
    queue = list(waiting)
    begun: list[str] = []
    while queue:
        free = [
            each
            for each in queue
            if teams[each.team] < limits.team
            and places[each.provider] < limits.provider
            and each.sandbox not in sandboxes
        ]
        if not free:
            return begun
        chosen = min(free, key=lambda each: teams[each.team])
        begun.append(chosen.id)
        queue.remove(chosen)
        teams[chosen.team] += 1
        places[chosen.provider] += 1
        if chosen.sandbox:
            sandboxes.add(chosen.sandbox)
    return begun


def why_waiting(
    task: Waiting,
    active: Mapping[tuple[str, str], int],
    busy: Iterable[str],
    limits: TaskLimits,
) -> str:
    """Return why the task is not started yet; empty if it can start."""
    if task.sandbox and task.sandbox in set(busy):
        return f"another task runs in sandbox {task.sandbox}; a sandbox runs one task at a time"
    of_team = sum(count for (team, _), count in active.items() if team == task.team)
    if of_team >= limits.team:
        return f"the team runs {of_team} tasks; its limit is {limits.team}"
    there = sum(count for (_, place), count in active.items() if place == task.provider)
    if there >= limits.provider:
        return f"{there} tasks run on {task.provider}; its limit is {limits.provider}"
    return ""
