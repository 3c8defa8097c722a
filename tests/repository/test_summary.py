"""What a machine lacks is said at the end of a test run; nothing is skipped in silence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.checkout import ROOT

MISSING = """
def test_one(need): need("runsc", "not installed")
def test_two(need): need("runsc", "not installed")
def test_three(need): need("a browser", "no display")
"""
UNEXPLAINED = "import pytest\ndef test_it(): pytest.skip('not today')\n"
WHOLE_MODULE = "import pytest\npytest.skip('not today', allow_module_level=True)\n"
SHARING = """
import pytest, time
def note(word):
    with open("log", "a") as file: file.write(word + " ")
@pytest.fixture(scope="session")
def engine(share):
    def start():
        note("start"); time.sleep(0.3)
        return {"port": 7}
    with share("engine", start, lambda value: note(f"stop:{value['port']}")) as value:
        time.sleep(0.5)
        yield value
@pytest.mark.parametrize("number", range(6))
def test_it(engine, number): assert engine == {"port": 7}
"""


def run_tests(directory: Path, *arguments: str, **modules: str) -> str:
    """Runs tests in a directory of their own, with this repository's conftest."""
    (directory / "pytest.ini").write_text("[pytest]\n")
    for name, code in modules.items():
        (directory / f"test_{name}.py").write_text(code)
    plugins = ("xdist", "tests.conftest", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *(f"-p{name}" for name in plugins), *arguments, "."],
        cwd=directory,
        env=without_xdist() | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def without_xdist() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if "PYTEST" not in name}


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> str:
    modules = {"missing": MISSING, "unexplained": UNEXPLAINED, "whole": WHOLE_MODULE}
    options = ("--continue-on-collection-errors",)
    return run_tests(tmp_path_factory.mktemp("alone"), *options, **modules)


@pytest.fixture(scope="module")
def parallel(tmp_path_factory) -> tuple[str, Path]:
    directory = tmp_path_factory.mktemp("parallel")
    return run_tests(directory, "-n2", missing=MISSING, sharing=SHARING), directory / "log"


@pytest.mark.parametrize("workers", ["alone", "parallel"])
def test_a_missing_component_is_listed_with_its_reason(workers, alone, parallel):
    said = alone if workers == "alone" else parallel[0]
    assert "not run: 2 tests need runsc: not installed" in said
    assert "not run: 1 test needs a browser: no display" in said
    assert "3 skipped" in said


def test_a_skip_without_a_component_is_a_failure(alone):
    assert "1 failed" in alone
    assert "test_unexplained.py::test_it was skipped without need(component, reason)" in alone


def test_a_module_that_skips_itself_is_an_error(alone):
    assert "1 error" in alone
    assert "test_whole.py was skipped without need(component, reason)" in alone


def test_workers_share_one_thing_that_is_started_once_and_stopped_once(parallel):
    said, log = parallel
    assert "6 passed" in said
    assert log.read_text().split() == ["start", "stop:7"]
