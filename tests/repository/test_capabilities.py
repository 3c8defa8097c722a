"""The capabilities page: 208 rows, and no claim about something that does not exist."""

import re
import subprocess
import sys

import pytest

from tests.repository.checkout import ROOT

PAGE = ROOT / "docs" / "reference" / "capabilities.md"


def test_the_page_has_a_row_for_every_capability():
    rows = re.findall(r"^\| ([A-Z]\d+) \|", PAGE.read_text(), re.M)
    assert len(rows) == len(set(rows)) == 208


@pytest.fixture
def check(tmp_path):
    """Collects the given tests in place of ours and says what the page would be."""

    def run(code: str) -> subprocess.CompletedProcess[str]:
        program = f"""
import sys; sys.path.insert(0, {str(ROOT / "scripts")!r})
import pathlib, capabilities
capabilities.ROOT = pathlib.Path({str(tmp_path)!r})
rows, proofs = capabilities.read_capabilities(), capabilities.collect_proofs(capabilities.ROOT)
capabilities.check_ids(rows, proofs)
print(capabilities.render(rows, proofs))
"""
        (tmp_path / "test_it.py").write_text("import pytest\n" + code)
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = proves\n")
        command = [sys.executable, "-c", program]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_an_unknown_id_is_an_error_that_names_the_test(check):
    done = check("@pytest.mark.proves('L999')\ndef test_it(): pass\n")
    assert done.returncode == 1
    assert "'L999' in test_it.py::test_it" in done.stderr


def test_a_test_that_cannot_be_imported_is_an_error(check):
    done = check("import nothing_of_that_name\n")
    assert done.returncode == 1
    assert "nothing_of_that_name" in done.stderr


def test_parameters_are_one_entry_and_inherited_tests_one_per_class(check):
    page = check("""
class Suite:
    @pytest.mark.proves("L1", "L2")
    @pytest.mark.parametrize("n", range(3))
    def test_makes_it(self, n): pass
class TestOne(Suite): pass
class TestTwo(Suite): pass
@pytest.mark.proves("L1")
def test_alone(): pass
""").stdout
    row = re.search(r"^\| L1 \|.*$", page, re.M)[0]
    assert row.count("makes it") == 1
    assert "makes it ([TestOne](../../test_it.py), [TestTwo](../../test_it.py))" in row
    assert "[alone](../../test_it.py)" in row
    assert "**2 of 208**" in page
    assert re.search(r"^\| L3 \|.*\| not yet \|$", page, re.M)
