"""The catalogue of failures names every case, and the tests that it names are there."""

import re

import pytest

from tests.repository.checkout import ROOT

PAGE = ROOT / "docs/reference/failures.md"
_ROW = re.compile(r"^\| (F\d+) \|(.*)\|$", re.M)
_TEST = re.compile(r"\[([^\]]+)\]\(\.\./\.\./(tests/[^)]+\.py)\)")
CASES = [f"F{number}" for number in range(1, 32)]


def rows():
    return dict(_ROW.findall(PAGE.read_text()))


@pytest.mark.proves("H9")
def test_every_case_is_there_once_and_in_order():
    assert [case for case, _ in _ROW.findall(PAGE.read_text())] == CASES


@pytest.mark.proves("H9")
def test_every_test_that_is_named_is_there():
    named = [found for row in rows().values() for found in _TEST.findall(row)]
    assert len(named) > 25
    missing = [
        (words, path)
        for words, path in named
        if not (ROOT / path).is_file()
        or not re.search(rf"def test_{words.replace(' ', '_')}\(", (ROOT / path).read_text())
    ]
    assert missing == []


@pytest.mark.proves("H9")
def test_a_case_has_a_test_or_says_what_is_missing():
    bare = [case for case, row in rows().items() if not _TEST.search(row) and "*later:" not in row]
    assert bare == []
