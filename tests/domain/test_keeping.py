"""Which snapshots are taken by themselves, and which are let go."""

import pytest

from paddock.domain.errors import InvalidRequest
from paddock.domain.keeping import Keeping, Kind, Pruning, is_due, outgrown
from paddock.domain.records import SnapshotRecord


def snapshot(number, *, automatic=True, at=0.0):
    return SnapshotRecord(f"snp_{number}", "tem", f"s{number}", "p", at, automatic=automatic)


@pytest.mark.proves("N5")
def test_an_idle_sandbox_is_kept_once_for_every_time_it_was_active():
    keeping = Keeping(idle_after_s=100)
    assert not is_due(keeping, 1000, None, 1099)
    assert is_due(keeping, 1000, None, 1100)
    assert not is_due(keeping, 1000, 1100, 5000)
    assert is_due(keeping, 2000, 1100, 2100)
    assert not is_due(Keeping(idle_after_s=None), 0, None, 1e12)


@pytest.mark.proves("N5")
def test_what_goes_is_old_enough_beyond_the_newest_and_of_the_kind_that_was_said():
    found = [snapshot(n, automatic=n != 2, at=100.0 - n) for n in range(5)]
    assert outgrown(found, Pruning(keep_last=2), 100) == [found[3], found[4]]
    assert outgrown(found, Pruning(older_than_s=3), 100) == [found[3], found[4]]
    assert outgrown(found, Pruning(older_than_s=4, keep_last=1), 100) == [found[4]]
    assert outgrown(found, Pruning(older_than_s=0, kind=Kind.MANUAL), 100) == [found[2]]
    assert outgrown(found, Pruning(keep_last=0, kind=Kind.ALL), 100) == found
    with pytest.raises(InvalidRequest, match="which snapshots"):
        Pruning()
