"""Choose the tests of `make quick`: the fast modules, and those that use what was changed.

A module is fast if `durations.json` does not list it: it takes less than a second. Slower modules
are added if they import a changed module, the nearest first, while the known durations fit into the
budget. The import graph comes from grimp, as in import-linter.
"""

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import grimp

from tests.harness.schedule import known_durations

ROOT = Path(__file__).parents[2]
BUDGET_S = 60.0
"""The budget for slower modules, per worker. Fast modules and the start take the rest."""
_WORKERS = 2


@dataclass(frozen=True)
class Selection:
    """Test files to run, and those that use changed modules but do not fit."""

    files: tuple[str, ...]
    left_out: tuple[str, ...]


def select(
    files: Iterable[str], durations: Mapping[str, float], distances: Mapping[str, int]
) -> Selection:
    """`distances` maps files that use a changed module to the length of the import chain."""
    seconds: dict[str, float] = {}
    for scope, took in durations.items():
        file = scope.partition("::")[0]
        seconds[file] = seconds.get(file, 0.0) + took
    chosen = [file for file in files if file not in seconds]
    left_out, budget = [], BUDGET_S * _WORKERS
    for file in sorted(distances, key=lambda each: (distances[each], seconds.get(each, 0.0), each)):
        took = seconds.get(file, 0.0)
        if not took:
            continue
        if took <= budget:
            budget -= took
            chosen.append(file)
        else:
            left_out.append(file)
    return Selection(tuple(sorted(set(chosen))), tuple(left_out))


def changed_modules() -> set[str]:
    """Return the modules that the branch and the working tree change, against origin/main."""
    base = _git("merge-base", "HEAD", "origin/main").strip() or "HEAD"
    names = _git("diff", "--name-only", base).splitlines()
    names += _git("ls-files", "--others", "--exclude-standard").splitlines()
    paths = [Path(name) for name in names if name.endswith(".py")]
    return {
        ".".join(path.with_suffix("").parts).removeprefix("src.").removesuffix(".__init__")
        for path in paths
    }


def distances_to(changed: set[str]) -> dict[str, int]:
    """Return test files that import a changed module, directly or indirectly, and its neighbours.

    Neighbours count because tests that start programs do not import them. `tests/` mirrors
    `src/paddock/`.
    """
    graph = grimp.build_graph("paddock", "tests", cache_dir=str(ROOT / "build" / "grimp"))
    found = dict.fromkeys(_neighbours(changed), 1)
    frontier, distance = changed & graph.modules, 0
    seen = set(frontier)
    while frontier:
        for module in frontier:
            if module.rpartition(".")[2].startswith("test_"):
                found.setdefault(f"{module.replace('.', '/')}.py", distance)
        importers = {
            each for module in frontier for each in graph.find_modules_that_directly_import(module)
        }
        frontier, distance = importers - seen, distance + 1
        seen |= frontier
    return found


def _neighbours(changed: set[str]) -> Iterator[str]:
    for module in changed:
        package = module.rpartition(".")[0].removeprefix("paddock").strip(".")
        if module.startswith("paddock.") and package:
            folder = ROOT / "tests" / package.replace(".", "/")
            yield from (path.relative_to(ROOT).as_posix() for path in folder.glob("test_*.py"))


def selection() -> Selection:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    return select(files, known_durations(), distances_to(changed_modules()))


def _git(*words: str) -> str:
    command = ["git", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
