"""Measurements name their rows, so that only what is asked for is set up and measured."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

from bench.rows import Row

Tell = Callable[[str], None]
Report = Callable[[Row], None]


class UnknownRow(Exception):
    """No row has a name with this word in it."""


class Missing(Exception):
    """What a set-up needs is not installed."""


@dataclass(frozen=True)
class Measurement:
    """Measures several rows at once, in the order of `names`. Only those in `wanted` are shown."""

    names: tuple[str, ...]
    run: Callable[[Any], Awaitable[list[Row]]]
    wanted: tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """Measurements with the same set-up. Each is called with what `open` yields."""

    setup: str
    open: Callable[[], AbstractAsyncContextManager[Any]]
    measurements: tuple[Measurement, ...]


def measures(*names: str) -> Callable[[Callable[[Any], Awaitable[list[Row]]]], Measurement]:
    """Make a measurement of a function that returns a row for each name."""
    return lambda run: Measurement(names, run, names)


def select(stages: Iterable[Stage], words: Sequence[str]) -> list[Stage]:
    """What measures rows with one of the words in their names; everything if there are no words."""
    stages = list(stages)
    names = [name for stage in stages for each in stage.measurements for name in each.names]
    for word in words:
        if not any(_contains(name, [word]) for name in names):
            known = "\n".join(f"  {name}" for name in names)
            raise UnknownRow(f"No row has {word!r} in its name. There are:\n{known}")
    chosen = []
    for stage in stages:
        found = [
            replace(each, wanted=tuple(name for name in each.names if _contains(name, words)))
            for each in stage.measurements
        ]
        if wanted := tuple(each for each in found if each.wanted):
            chosen.append(replace(stage, measurements=wanted))
    return chosen


def _contains(name: str, words: Sequence[str]) -> bool:
    return not words or any(word.casefold() in name.casefold() for word in words)


async def run(stages: Iterable[Stage], tell: Tell, report: Report) -> None:
    """Tell what is being done, and report each row as soon as it is measured."""
    for stage in stages:
        tell(f"setting up {stage.setup}")
        try:
            await _run_stage(stage, tell, report)
        except Missing as error:
            tell(f"not measured: {error}")


async def _run_stage(stage: Stage, tell: Tell, report: Report) -> None:
    async with stage.open() as setup:
        for each in stage.measurements:
            tell(f"measuring {'; '.join(each.wanted)}")
            measured = zip(each.names, await each.run(setup), strict=True)
            for row in (replace(row, name=name) for name, row in measured if name in each.wanted):
                report(row)
