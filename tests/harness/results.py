"""Record the result of every test, for the runner and for the capabilities page.

A pytest plugin. It writes the file that `PADDOCK_TEST_RESULTS` names when the session ends.
"""

import json
import os
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.harness.components import missing_component

FILE = "PADDOCK_TEST_RESULTS"
_CAPABILITIES = Path(__file__).parents[2] / "docs" / "reference" / "capabilities.toml"
_MARKS = ("slow", "soak", "alone")


@dataclass
class Result:
    """The result of one test. `seconds` covers the test itself, without fixtures."""

    outcome: str = "passed"
    """passed, failed or missing (a component that the machine lacks)."""
    seconds: float = 0.0
    fixtures: float = 0.0
    marks: list[str] = field(default_factory=list)
    proves: list[str] = field(default_factory=list)
    missing: str = ""
    error: str = ""


class Recorder:
    """Collects reports in the process that the user started."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._results: dict[str, Result] = {}
        self._broken: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result = self._results.setdefault(report.nodeid, Result())
        properties = dict(report.user_properties)
        result.marks = properties.get("marks", [])
        result.proves = properties.get("proves", [])
        if report.when == "call":
            result.seconds = round(report.duration, 3)
        else:
            result.fixtures = round(result.fixtures + report.duration, 3)
        if report.failed:
            result.outcome, result.error = "failed", _summary(report)
        elif report.skipped and result.outcome == "passed":
            result.outcome, result.missing = "missing", missing_component(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._broken.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        content = {
            "broken": self._broken,
            "tests": {name: asdict(result) for name, result in self._results.items()},
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(content))
        draft.rename(self._path)


def _summary(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr).strip().splitlines()
    return lines[0] if lines else ""


def pytest_itemcollected(item: pytest.Item) -> None:
    marks = [name for name in _MARKS if item.get_closest_marker(name)]
    item.user_properties += [("marks", marks), ("proves", _proved_by(item))]


def _proved_by(item: pytest.Item) -> list[str]:
    return [each for marker in item.iter_markers("proves") for each in marker.args]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    """A mark with an unknown id is an error that names the test."""
    report = yield
    items = [each for each in report.result or () if isinstance(each, pytest.Item)]
    unknown = [
        f"{item.nodeid} proves {identifier!r}, which is not in {_CAPABILITIES.name}"
        for item in items
        for identifier in _proved_by(item)
        if identifier not in _known_capabilities()
    ]
    if unknown:
        report.outcome, report.longrepr = "failed", "\n".join(dict.fromkeys(unknown))
    return report


@cache
def _known_capabilities() -> frozenset[str]:
    areas = tomllib.loads(_CAPABILITIES.read_text())["area"]
    return frozenset(identifier for area in areas for identifier in area["capabilities"])


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.get(FILE)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(path)))
