"""What all tests share: saying which component is missing, and one engine for all workers.

A test or fixture that lacks something calls `need("runsc", "not installed")`. It is then reported
as not run, and the summary lists every such component. Any other skip is a failure.
"""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests.harness import disk, fork_server
from tests.harness.components import missing_component
from tests.root import require_root

pytest_plugins = [
    "tests.databases",
    "tests.harness.garbage",
    "tests.harness.results",
    "tests.harness.schedule",
]

# How long it takes to make up an example says how busy the machine is.
# The same examples wherever they run: what is green stays so until somebody changes something. More
# are looked for with PADDOCK_TEST_RANDOM=1.
settings.register_profile(
    "paddock",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="PADDOCK_TEST_RANDOM" not in os.environ,
)
settings.load_profile("paddock")

Need = Callable[[str, str], NoReturn]
Share = Callable[[str, Callable[[], Any], Callable[[Any], None]], AbstractContextManager[Any]]

_UNEXPLAINED = "was skipped without need(component, reason): say which component is missing"


@pytest.fixture(scope="session")
def need() -> Need:
    """`need(component, reason)` ends the test as not run, for want of the component."""

    def want(component: str, reason: str) -> NoReturn:
        pytest.skip(f"needs {component}: {reason}")

    return want


@pytest.fixture(scope="session")
def as_root() -> None:
    """For tests that mount, change owners or make namespaces themselves."""
    require_root()


@pytest.fixture(scope="session")
def share(tmp_path_factory: pytest.TempPathFactory) -> Share:
    """`with share(name, start, stop) as value:` has one `value` for all parallel workers.

    The first worker starts it, the last one that lets go stops it. The value goes through JSON.
    Session fixtures for what is expensive (the Docker engine, a built template) are made of this.
    """
    base = tmp_path_factory.getbasetemp()
    directory = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def shared(
        name: str, start: Callable[[], Any], stop: Callable[[Any], None]
    ) -> AbstractContextManager[Any]:
        return _shared(directory / f"shared-{name}", start, stop)

    return shared


@contextmanager
def _shared(path: Path, start: Callable[[], Any], stop: Callable[[Any], None]) -> Iterator[Any]:
    with _locked(path) as state:
        state["holders"] = [pid for pid in state.get("holders", []) if _is_alive(pid)]
        if not state["holders"]:
            state["value"] = start()
        state["holders"].append(os.getpid())
    try:
        yield state["value"]
    finally:
        with _locked(path) as state:
            state["holders"].remove(os.getpid())
            if not state["holders"]:
                stop(state["value"])


@contextmanager
def _locked(path: Path) -> Iterator[dict[str, Any]]:
    """The state in the file, alone; written back unless the body fails."""
    with path.with_suffix(".json").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        state = json.loads(file.read() or "{}")
        yield state
        file.seek(0)
        file.truncate()
        file.write(json.dumps(state))


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    report = yield
    if report.skipped and not missing_component(report) and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"{item.nodeid} {_UNEXPLAINED}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    report = yield
    if report.skipped and not missing_component(report):
        report.outcome, report.longrepr = "failed", f"{collector.nodeid} {_UNEXPLAINED}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missing = Counter(map(missing_component, terminalreporter.stats.get("skipped", [])))
    if not missing:
        return
    terminalreporter.section("components that were missing")
    for what, count in sorted(missing.items()):
        tests = "1 test needs" if count == 1 else f"{count} tests need"
        terminalreporter.line(f"not run: {tests} {what}")


def pytest_configure(config: pytest.Config) -> None:
    # Programs that `scripts/setup.sh` fetched for tests come before installed ones.
    os.environ["PATH"] = f"{disk.CACHE / 'bin'}{os.pathsep}{os.environ['PATH']}"
    fork_server.install()
    if not hasattr(config, "workerinput"):
        disk.begin_session()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the session's directory when its workers have ended; let go of the disk."""
    if os.geteuid() != 0:
        return
    if not hasattr(config, "workerinput") and os.path.ismount(disk.DISK):
        disk.remove(disk.session_directory())
    disk.release()
