"""A measured row: ours, the same work done by something else in the same run, and the target."""

import json
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

HEAD = f"{'what':58} {'ours':>10} {'baseline':>10} {'unit':6} {'ratio':>8}  target"


@dataclass(frozen=True)
class Row:
    """One line of the report. `ratio` is ours / baseline, where there is one."""

    name: str
    ours: float
    baseline: float | None
    unit: str
    ratio: float | None
    target: str
    met: bool

    @property
    def line(self) -> str:
        baseline = f"{self.baseline:.2f}" if self.baseline is not None else "–"
        ratio = "–" if self.ratio is None else f"{self.ratio:.3f}"
        mark = "met" if self.met else "MISSED"
        return (
            f"{self.name:58} {self.ours:10.2f} {baseline:>10} {self.unit:6} {ratio:>8}  "
            f"{self.target}  {mark}"
        )


def at_most(ours: float, limit: float, unit: str) -> Row:
    return Row("", ours, None, unit, None, f"≤ {limit:g} {unit}", ours <= limit)


def at_least(ours: float, limit: float, unit: str, baseline: float | None = None) -> Row:
    ratio = ours / baseline if baseline else None
    return Row("", ours, baseline, unit, ratio, f"≥ {limit:g} {unit}", ours >= limit)


def fraction(ours: float, baseline: float, part: int, unit: str = "ms") -> Row:
    ratio = ours / baseline
    return Row("", ours, baseline, unit, ratio, f"≤ 1/{part} of baseline", ratio <= 1 / part)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    await work()
    return (time.perf_counter() - start) * 1e3


async def median(count: int, work: Callable[[int], Awaitable[float]]) -> float:
    return statistics.median([await work(number) for number in range(count)])


def write(rows: list[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
