"""The page of capabilities counts tests that ran and passed, and nothing else."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.repository.checkout import ROOT
from tests.repository.test_harness import nested

REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture
def checkout(tmp_path):
    """A directory with the script and its list."""
    for name in ("scripts/capabilities.py", "docs/reference/capabilities.toml"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def write_results(checkout: Path, tier: str = "test", **outcomes: str) -> None:
    """For each capability, the outcomes of its tests."""
    file = checkout / "build" / "results" / f"{tier}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    found = {
        f"tests/test_it.py::test_{identifier}_{number}[x]": {
            "outcome": outcome,
            "proves": [identifier],
            "missing": "runsc: not installed" if outcome == "missing" else "",
        }
        for identifier, said in outcomes.items()
        for number, outcome in enumerate(said.split())
    }
    file.write_text(json.dumps(found))


def run_script(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "scripts/capabilities.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read_page(checkout: Path) -> str:
    return (checkout / "docs/reference/capabilities.md").read_text()


def row(page: str, identifier: str) -> list[str]:
    found = re.search(rf"^\| {identifier} \| (.*) \|$", page, re.M)
    return found[1].split(" | ")


def test_an_unknown_id_is_a_collection_error_that_names_the_test(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = proves\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.proves('L1', 'L999')\ndef test_it(): pass\n"
    )
    said = nested(tmp_path, "-p", "tests.harness.results")
    assert "test_it.py::test_it proves 'L999'" in said
    assert "1 error" in said


def test_without_results_the_script_says_what_to_run(checkout):
    done = run_script(checkout)
    assert done.returncode == 1
    assert "There is no complete run of `make test`. Run it first." in done.stderr


@pytest.mark.proves("Q4")
def test_only_tests_that_passed_are_counted(checkout):
    write_results(checkout, L1="passed failed", L2="failed", L3="missing", L9="passed")
    write_results(checkout, "slow", L5="passed")
    assert run_script(checkout).returncode == 0
    page = read_page(checkout)
    assert row(page, "L1")[1:] == ["proved", "[L1 0](../../tests/test_it.py)"]
    assert row(page, "L5")[1:] == ["proved", "[L5 0](../../tests/test_it.py)"]
    for identifier in ("L2", "L3", "L4"):
        assert row(page, identifier)[1:] == ["not yet", "–"]
    assert row(page, "L9")[1].startswith("partial: ")
    assert "| Lifecycle | 2 | 1 | 13 | 16 |" in page


def test_the_page_stays_as_it_is_where_a_component_is_missing(checkout):
    write_results(checkout, L1="passed passed", L2="passed passed")
    run_script(checkout)
    before = read_page(checkout)
    write_results(checkout, L1="passed missing", L2="missing missing")
    done = run_script(checkout, "--check")
    assert done.returncode == 0, done.stderr
    assert "L2: not verified here: runsc: not installed" in done.stdout
    run_script(checkout)
    assert read_page(checkout) == before


@pytest.mark.parametrize(
    ("now", "code", "said"),
    [
        ({"L1": "failed"}, 1, "L1: failed: tests/test_it.py::test_L1_0"),
        ({}, 1, "L1: no test shows it any more"),
        ({"L1": "passed", "L2": "passed"}, 0, "L2: shown by tests/test_it.py::test_L2_0, but"),
    ],
    ids=["failed", "gone", "less"],
)
def test_a_page_that_claims_more_than_the_last_run_is_an_error(checkout, now, code, said):
    write_results(checkout, L1="passed")
    run_script(checkout)
    write_results(checkout, **now)
    for tier in ("slow", "soak"):
        write_results(checkout, tier)
    done = run_script(checkout, "--check")
    assert done.returncode == code
    assert said in done.stdout
    assert ("run `make capabilities`" in done.stderr) == bool(code)


def test_the_page_has_a_row_for_every_capability_and_is_small():
    page = (REFERENCE / "capabilities.md").read_text()
    areas = tomllib.loads((REFERENCE / "capabilities.toml").read_text())["area"]
    listed = {name: each for area in areas for name, each in area["capabilities"].items()}
    assert re.findall(r"^\| ([A-Z]\d+) \|", page, re.M) == list(listed)
    assert len(listed) == 208
    assert len(page.encode()) < 40_000
    for identifier, (name, _, *missing) in listed.items():
        shown, status, link = row(page, identifier)
        proved = f"partial: {missing[0]}" if missing else "proved"
        assert (shown, status) == (name, "not yet" if link == "–" else proved)
