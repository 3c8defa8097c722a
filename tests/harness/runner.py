"""Run one tier of the tests and report it: `python -m tests.harness TIER [pytest arguments]`.

A tier runs in up to four pytest sessions. Most tests run in parallel. Tests that inspect the whole
machine (`alone`) follow, one after the other. At the end, up to five failed tests run once more,
alone: a test that then passes is reported as flaky, not as a failure. Tests that took too long are
timed once more, one per core.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness import disk, leaks, quick
from tests.harness.results import FILE
from tests.harness.schedule import DURATIONS, known_durations, scope_of

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
TIERS = {
    "test": "not slow and not soak",
    "slow": "slow and not soak",
    "soak": "soak",
    "quick": "not slow and not soak",
}
LONGEST_S = 5.0
"""A test that takes longer needs the mark `slow`."""
MOST_RERUNS = 5
_CORES = os.cpu_count() or 1
# Tests wait for sandboxes about as long as they compute: two workers keep one core busy.
WORKERS = max(_CORES, min(2 * _CORES, 8))
PARALLEL = ("-n", str(WORKERS), "--dist", "loadscope", "--no-loadscope-reorder")
_MOST_TIMED = 15
_FAILED, _NO_TESTS = 1, 5

Tests = dict[str, dict[str, Any]]


@dataclass
class Run:
    """The results of a tier."""

    tier: str
    tests: Tests = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Anything besides a failed test: a session that broke off, something left behind."""
    flaky: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def having(self, outcome: str) -> list[str]:
        return [name for name, test in self.tests.items() if test["outcome"] == outcome]

    @property
    def is_good(self) -> bool:
        return not self.problems and not self.having("failed")


def run_tier(tier: str, arguments: Sequence[str]) -> Run:
    run, begun = Run(tier), time.monotonic()
    expression = TIERS[tier]
    if tier == "quick":
        arguments = [*_quick_files(), *arguments]
    before = leaks.look()
    _session(
        run,
        *PARALLEL,
        *("-m", f"({expression}) and not alone", *arguments),
    )
    if files := _files_with_mark("alone", arguments):
        _session(run, "-m", f"({expression}) and alone", *files)
    if not run.problems:
        _run_again(run)
    leaks.restore_settings(before)
    if disk.is_used_by_others():
        _headline("another test run is active, so leaks were not checked")
    else:
        run.problems += [f"left behind: {each}" for each in leaks.left_behind(before)]
    run.seconds = time.monotonic() - begun
    return run


def _quick_files() -> tuple[str, ...]:
    chosen = quick.selection()
    if chosen.left_out:
        _headline(
            "not run, because they take longer; `make test` runs these tests of changed modules"
        )
        _print(chosen.left_out)
    return chosen.files


def _session(run: Run, *arguments: str) -> None:
    """Run pytest; its results are added to the run."""
    file = BUILD / "results" / "session.json"
    file.unlink(missing_ok=True)
    environment = {**os.environ, FILE: str(file)}
    command = [sys.executable, "-m", "pytest", *arguments]
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    results = json.loads(file.read_text()) if file.exists() else {"tests": {}, "broken": []}
    run.tests.update(results["tests"])
    run.problems += [f"cannot be collected: {name}" for name in results["broken"]]
    if code not in (0, _FAILED, _NO_TESTS) and not results["broken"]:
        run.problems.append(f"pytest ended with {code}")


def _files_with_mark(mark: str, arguments: Sequence[str]) -> list[str]:
    """Return files that contain the mark, so that only they are collected. Keeps selected paths."""
    paths = [Path(word) for word in arguments if (ROOT / word.partition("::")[0]).exists()]
    places = paths or [Path("tests")]
    files = (
        file
        for place in places
        for file in ([ROOT / place] if place.suffix else (ROOT / place).rglob("test_*.py"))
    )
    sign = f"mark.{mark}"
    return sorted({str(file.relative_to(ROOT)) for file in files if sign in file.read_text()})


def _run_again(run: Run) -> None:
    failed, slow = run.having("failed"), too_slow(run.tests)[:_MOST_TIMED]
    if len(failed) > MOST_RERUNS:
        failed = []
    if not failed and not slow:
        return
    _headline(f"once more: {len(failed)} failed, {len(slow)} over {LONGEST_S:g} s")
    again = Run(run.tier)
    if failed:
        _session(again, *failed)
    if slow:
        # One per core: as fast as alone, and done sooner.
        _session(again, "-n", str(_CORES), "--dist", "load", *slow)
    run.problems += again.problems
    limit = LONGEST_S * slowness(run.tests, known_durations())
    for name in failed:
        if again.tests.get(name, {}).get("outcome") == "passed":
            run.flaky.append(f"{name}: {run.tests[name]['error']}")
            run.tests[name] = again.tests[name]
    for name in slow:
        seconds = again.tests.get(name, run.tests[name])["seconds"]
        if seconds > limit:
            run.tests[name]["outcome"] = "failed"
            run.tests[name]["error"] = (
                f"took {seconds:.1f} s again; a test over {limit:.2g} s needs the mark `slow`"
            )


def slowness(tests: Tests, known: Mapping[str, float]) -> float:
    """How many times longer than recorded this run's modules took; at least 1.

    The same machine can be half as fast an hour later. A test does not fail for that.
    """
    took = seconds_by_scope(tests)
    same = [scope for scope in known if scope in took]
    before = sum(known[scope] for scope in same)
    return max(1.0, sum(took[scope] for scope in same) / before) if before else 1.0


def too_slow(tests: Tests) -> list[str]:
    return [
        name
        for name, test in tests.items()
        if test["seconds"] > LONGEST_S
        and test["outcome"] == "passed"
        and not {"slow", "soak"} & set(test["marks"])
    ]


def write_reports(run: Run) -> None:
    """Write reports for people, for the capabilities page and for the order of the next run."""
    (BUILD / "results").mkdir(parents=True, exist_ok=True)
    ordered = sorted(run.tests.items(), key=lambda test: -test[1]["seconds"])
    durations = {name: test["seconds"] for name, test in ordered}
    _write(BUILD / "durations.json", {"tier": run.tier, "seconds": run.seconds, "tests": durations})
    _write(BUILD / "flaky.json", run.flaky)
    _write(BUILD / "results" / f"{run.tier}.json", run.tests)


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1))


def seconds_by_scope(tests: Tests) -> dict[str, float]:
    """How long each module and class took, with its fixtures."""
    seconds: dict[str, float] = defaultdict(float)
    for name, test in tests.items():
        seconds[scope_of(name)] += test["seconds"] + test["fixtures"]
    return seconds


def write_durations() -> None:
    """Record how long each module and class takes, from the results of the last runs."""
    files = [BUILD / "results" / f"{tier}.json" for tier in ("test", "slow")]
    tests = [json.loads(file.read_text()) for file in files if file.exists()]
    seconds = seconds_by_scope({name: test for run in tests for name, test in run.items()})
    longest = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))
    kept = {scope: round(took, 1) for scope, took in longest if took >= 1}
    DURATIONS.write_text(json.dumps(kept, indent=1) + "\n")


def show(run: Run) -> None:
    slowest = sorted(run.tests.items(), key=lambda test: -test[1]["seconds"])[:10]
    _headline("the ten slowest tests")
    _print(f"{test['seconds']:7.2f} s  {name}" for name, test in slowest)
    if run.flaky:
        _headline(f"FLAKY: {len(run.flaky)} failed, then passed alone; each is a bug to fix")
        _print(run.flaky)
    failed = run.having("failed")
    if failed or run.problems:
        _headline("failures")
        _print(run.problems)
        _print(f"{name}: {run.tests[name]['error']}" for name in failed)
    counts = f"{len(run.having('passed'))} passed, {len(failed)} failed"
    minutes, seconds = divmod(round(run.seconds), 60)
    _headline(f"{run.tier}: {minutes} min {seconds:02d} s, {len(run.flaky)} flaky")
    print(f"{counts}, {len(run.having('missing'))} skipped")


def _headline(text: str) -> None:
    print(f"\n== {text}", flush=True)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"  {line}")


def main(words: Sequence[str]) -> int:
    if words and words[0] == "durations":
        write_durations()
        return 0
    if not words or words[0] not in TIERS:
        print(f"usage: python -m tests.harness {{{'|'.join(TIERS)}|durations}} [pytest arguments]")
        return 2
    tier, *arguments = words
    # Background jobs ignore SIGINT, and `nohup` ignores SIGHUP. Programs would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    run = run_tier(tier, arguments)
    if not arguments:
        write_reports(run)
    show(run)
    return 0 if run.is_good else 1
