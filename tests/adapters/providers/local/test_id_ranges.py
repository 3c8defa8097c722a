"""ID ranges of sandboxes: each has one while it runs, and none afterwards."""

import shutil

import pytest

from paddock.adapters.providers.local.id_ranges import FIRST, SIZE, IdRanges
from paddock.domain.errors import QuotaExceeded


def test_a_sandbox_that_starts_again_and_again_holds_one_range(tmp_path):
    ranges, bundle = IdRanges(tmp_path), tmp_path / "bundle"
    for number in range(3):
        bundle.mkdir()
        first = ranges.take(bundle / f"user-{number}")
        assert (first - FIRST) % SIZE == 0
        held = [link for link in tmp_path.iterdir() if link.is_symlink() and link.exists()]
        assert len(held) == 1
        shutil.rmtree(bundle)


def test_ranges_that_are_in_use_are_given_to_nobody_else(tmp_path):
    ranges = IdRanges(tmp_path, count=3)
    taken = {ranges.take(tmp_path / f"user-{name}") for name in "abc"}
    assert len(taken) == 3
    with pytest.raises(QuotaExceeded, match="in use by sandboxes"):
        ranges.take(tmp_path / "user-d")
    (tmp_path / "user-b").unlink()
    assert ranges.take(tmp_path / "user-d") in taken
