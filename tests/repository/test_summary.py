"""What a machine lacks is said at the end of a test run; nothing is skipped in silence."""

import os
import subprocess
import sys

import pytest

from tests.repository.checkout import ROOT


@pytest.fixture
def run_tests(tmp_path):
    """Runs tests in a directory of their own, with this repository's conftest."""

    def run(code: str, *arguments: str) -> str:
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        (tmp_path / "test_it.py").write_text(code)
        plugins = ["-p", "tests.conftest", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *plugins, *arguments, str(tmp_path)],
            cwd=tmp_path,
            env=without_xdist() | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    return run


def without_xdist() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if "PYTEST" not in name}


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "parallel"])
def test_a_missing_component_is_listed_with_its_reason(run_tests, workers):
    said = run_tests(
        """
def test_one(need): need("runsc", "not installed")
def test_two(need): need("runsc", "not installed")
def test_three(need): need("a browser", "no display")
""",
        *workers,
    )
    assert "not run: 2 tests need runsc: not installed" in said
    assert "not run: 1 test needs a browser: no display" in said
    assert "3 skipped" in said


@pytest.mark.proves("Q4")
def test_a_skip_without_a_component_is_a_failure(run_tests):
    said = run_tests("import pytest\ndef test_it(): pytest.skip('not today')\n")
    assert "1 failed" in said
    assert "say which component is missing" in said


@pytest.mark.proves("Q4")
def test_a_module_that_skips_itself_is_an_error(run_tests):
    said = run_tests("import pytest\npytest.skip('not today', allow_module_level=True)\n")
    assert "1 error" in said
    assert "say which component is missing" in said


def test_workers_share_one_thing_that_is_started_once_and_stopped_once(run_tests, tmp_path):
    log = tmp_path / "log"
    code = f"""
import pytest, time
def note(word):
    with open({str(log)!r}, "a") as file: file.write(word + " ")
@pytest.fixture(scope="session")
def engine(share):
    def start():
        note("start"); time.sleep(0.3)
        return {{"port": 7}}
    with share("engine", start, lambda value: note(f"stop:{{value['port']}}")) as value:
        time.sleep(0.5)
        yield value
@pytest.mark.parametrize("number", range(6))
def test_it(engine, number): assert engine == {{"port": 7}}
"""
    said = run_tests(code, "-n", "3")
    assert "6 passed" in said
    assert log.read_text().split() == ["start", "stop:7"]
