"""The runner: slow tests, flaky tests, leaks and nested sessions are found."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import disk
from tests.harness.quick import select
from tests.harness.runner import slowness, too_slow
from tests.harness.schedule import longest_first
from tests.repository.checkout import ROOT
from tests.repository.test_summary import without_xdist

RUN = """
import sys
from pathlib import Path
from tests.harness import disk, leaks, runner
runner.ROOT, runner.BUILD = Path.cwd(), Path.cwd() / "build"
runner.LONGEST_S, runner.PARALLEL = 0.5, ()
# Other tests are at work, so only what this one makes is looked at.
leaks.look = lambda: {"directory": frozenset(map(str, Path.cwd().glob("paddock-*")))}
leaks._SETTLE_S, disk.is_used_by_others = 0.0, lambda: False
sys.exit(runner.main(["test"]))
"""


@pytest.fixture
def run(tmp_path):
    """Runs the tier `test` on tests of its own, with a limit of half a second."""

    def run(code: str) -> subprocess.CompletedProcess[str]:
        markers = "markers =\n  slow\n  soak\n  alone\n  proves\n"
        options = "addopts = -p tests.harness.results -p no:cacheprovider\n"
        (tmp_path / "pytest.ini").write_text(f"[pytest]\n{markers}{options}")
        (tmp_path / "tests").mkdir()
        (tmp_path / "tests" / "test_it.py").write_text("import pytest, time, pathlib\n" + code)
        return subprocess.run(
            [sys.executable, "-c", RUN],
            cwd=tmp_path,
            env=without_xdist() | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_slow_test_without_the_mark_and_one_that_fails_twice_fail(run):
    done = run("""
def test_slow(): time.sleep(0.6)
def test_bad(): assert 1 == 2
""")
    assert done.returncode == 1
    assert re.search(
        r"test_slow: took [\d.]+ s again; a test over 0.5 s needs the mark `slow`", done.stdout
    )
    assert "test_bad: assert 1 == 2" in done.stdout
    assert "0 passed, 2 failed, 0 skipped" in done.stdout


def test_a_test_that_passes_the_second_time_is_reported_as_flaky(run, tmp_path):
    done = run("""
def test_it():
    mark = pathlib.Path("mark")
    first = not mark.exists()
    mark.touch()
    assert not first, "the first time"
@pytest.mark.alone
def test_alone(): pass
""")
    assert done.returncode == 0, done.stdout
    assert "FLAKY: 1 failed, then passed alone" in done.stdout
    assert "2 passed, 0 failed, 0 skipped" in done.stdout
    assert "the first time" in json.loads((tmp_path / "build/flaky.json").read_text())[0]
    durations = json.loads((tmp_path / "build/durations.json").read_text())["tests"]
    assert set(durations) == {"tests/test_it.py::test_it", "tests/test_it.py::test_alone"}


def test_something_left_behind_is_a_failure(run, tmp_path):
    done = run("def test_it(): pathlib.Path('paddock-left').mkdir()\n")
    assert done.returncode == 1
    assert f"left behind: directory: {tmp_path / 'paddock-left'}" in done.stdout
    assert "1 passed, 0 failed, 0 skipped" in done.stdout


def test_a_warning_of_garbage_fails_the_module_that_left_it(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_a.py").write_text(
        "import socket\ndef test_it():\n    a = [socket.socket()]\n    a.append(a)\n"
    )
    (tmp_path / "test_b.py").write_text("def test_it(): pass\n")
    said = nested(tmp_path, "-p", "tests.harness.garbage")
    assert "ERROR test_a.py::test_it" in said
    assert "2 passed, 1 error" in said


def test_a_nested_session_leaves_the_disk_mounted(need, tmp_path):
    if os.geteuid() != 0:
        need("root", "only root can mount the disk")
    disk.hold()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(
        "from tests.harness import disk\ndef test_it(): disk.hold(); disk.new_directory()\n"
    )
    assert "1 passed" in nested(tmp_path, "-p", "tests.conftest")
    assert os.path.ismount(disk.DISK)


def nested(place: Path, *options: str) -> str:
    """What a session says that runs the tests in that directory."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", "."],
        cwd=place,
        env=without_xdist() | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def test_only_tests_without_a_mark_are_too_slow():
    def test(seconds, *marks):
        return {"seconds": seconds, "marks": list(marks), "outcome": "passed"}

    tests = {"a": test(6.0), "b": test(6.0, "slow"), "c": test(4.9), "d": test(9.0, "soak")}
    assert too_slow(tests) == ["a"]


def test_the_limit_grows_with_a_slower_machine_and_never_shrinks():
    tests = {
        "a.py::1": {"seconds": 2.0, "fixtures": 1.0},
        "a.py::2": {"seconds": 3.0, "fixtures": 0.0},
        "new.py::1": {"seconds": 50.0, "fixtures": 0.0},
    }
    assert slowness(tests, {"a.py": 4.0, "gone.py": 9.0}) == 1.5
    assert slowness(tests, {"a.py": 60.0}) == 1.0
    assert slowness(tests, {}) == 1.0


def test_the_longest_modules_come_first_and_keep_their_order():
    names = ["a.py::1", "b.py::1", "b.py::K::1", "b.py::2", "c.py::1"]
    order = longest_first(names, {"c.py": 9.0, "b.py": 3.0})
    assert [names[position] for position in order] == [
        *("c.py::1", "b.py::1", "b.py::2", "a.py::1", "b.py::K::1"),
    ]


def test_quick_takes_fast_modules_and_the_nearest_that_use_a_change():
    durations = {"tests/slow.py": 50.0, "tests/far.py::K": 80.0, "tests/near.py": 30.0}
    files = ["tests/fast.py", *(name.partition("::")[0] for name in durations)]
    chosen = select(files, durations, {"tests/far.py": 3, "tests/near.py": 1, "tests/slow.py": 2})
    assert chosen.files == ("tests/fast.py", "tests/near.py", "tests/slow.py")
    assert chosen.left_out == ("tests/far.py",)
