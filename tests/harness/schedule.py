"""Start the longest modules first, so that no worker is left with one at the end.

A pytest plugin. xdist hands out whole modules and classes in the order of the collection (the
runner sets `--dist loadscope --no-loadscope-reorder`). `durations.json` beside this file has the
seconds of each that takes more than one; `make durations` writes it.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

DURATIONS = Path(__file__).with_name("durations.json")
_USUAL_S = 0.05
"""The assumed time of a test whose module is not in the file."""


def scope_of(nodeid: str) -> str:
    """Return the module or class of a test. One worker runs all tests of a scope."""
    return nodeid.rsplit("::", 1)[0]


def known_durations() -> dict[str, float]:
    """Seconds by module or class, of those that take more than one."""
    durations: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return durations


def longest_first(nodeids: list[str], durations: dict[str, float]) -> list[int]:
    """Positions of the tests, those of the longest scopes first; tests of a scope stay in order."""
    scopes = [scope_of(nodeid) for nodeid in nodeids]
    sizes = Counter(scopes)
    seconds = {scope: durations.get(scope, _USUAL_S * size) for scope, size in sizes.items()}
    first = {scope: position for position, scope in reversed(list(enumerate(scopes)))}
    return sorted(range(len(nodeids)), key=lambda i: (-seconds[scopes[i]], first[scopes[i]], i))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        order = longest_first([item.nodeid for item in items], known_durations())
        items[:] = [items[position] for position in order]
