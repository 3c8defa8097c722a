"""Files for builds: within the team's quota, and nobody's but whose who handed them in.

Issue: unlimited E2B build files; content must match its hash.
"""

import asyncio
import os

import pytest

from paddock.domain.errors import LimitExceeded, NotFound, QuotaExceeded
from paddock.domain.quota import MIB, QuotaName
from paddock.services import build_files
from paddock.services.build_files import BuildFile, BuildFiles
from tests.adapters.store.conftest import others, place, postgres_place, sqlite_place, store, team

__all__ = ["others", "place", "postgres_place", "sqlite_place", "store", "team"]  # fixtures

DIGEST = "ab" * 32


async def pieces(*sizes):
    for size in sizes:
        yield bytes(size)


async def never():
    raise AssertionError("nothing of it is read")
    yield b""


@pytest.fixture
def files(store, tmp_path):
    return BuildFiles(tmp_path / "files", store)


async def limit(store, team, mib):
    await store.write(lambda tx: tx.quotas.put(team.id, {QuotaName.DISK_MIB: mib}))


def on_disk(files):
    return sorted(each.stat().st_size for each in files._place.rglob("*") if each.is_file())


async def test_what_was_handed_in_is_found_by_who_handed_it_in_only(files, team, others):
    mine = BuildFile(team.id, "usr_1", DIGEST)
    await files.keep(mine, pieces(10, 20))
    assert files.has(mine)
    assert b"".join([each async for each in files.read(mine)]) == bytes(30)
    for other in (BuildFile(team.id, "usr_2", DIGEST), BuildFile(others.id, "usr_1", DIGEST)):
        assert not files.has(other)
        with pytest.raises(NotFound):
            _ = [each async for each in files.read(other)]
    assert on_disk(files) == [30]


async def test_what_is_announced_as_too_large_is_refused_before_it_is_read(
    files, store, team, others
):
    await limit(store, team, 10)
    with pytest.raises(LimitExceeded, match="disk_mib"):
        await files.keep(BuildFile(team.id, "usr_1", DIGEST), never(), 11 * MIB)
    assert on_disk(files) == []
    await files.keep(BuildFile(others.id, "usr_1", DIGEST), pieces(11 * MIB), 11 * MIB)


async def test_what_turns_out_to_be_too_large_leaves_nothing(files, store, team):
    await limit(store, team, 10)
    with pytest.raises(LimitExceeded, match="disk_mib"):
        await files.keep(BuildFile(team.id, "usr_1", DIGEST), pieces(*[MIB] * 11))
    assert on_disk(files) == []
    assert await store.read(lambda tx: tx.quotas.build_file_bytes(team.id)) == 0


async def test_of_two_at_once_one_finds_room(files, store, team):
    await limit(store, team, 3)
    names = (BuildFile(team.id, f"usr_{each}", DIGEST) for each in range(2))
    keeping = (files.keep(each, pieces(2 * MIB), 2 * MIB) for each in names)
    done = await asyncio.gather(*keeping, return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["NoneType", "QuotaExceeded"]
    assert on_disk(files) == [2 * MIB]
    used = await store.read(lambda tx: tx.quotas.usage(team.id))
    assert used.disk_mib == 2.0


async def test_the_same_again_takes_the_place_of_the_one_before(files, store, team):
    await limit(store, team, 3)
    mine = BuildFile(team.id, "usr_1", DIGEST)
    await files.keep(mine, pieces(MIB))
    await files.keep(mine, pieces(MIB + 1))
    assert on_disk(files) == [MIB + 1]
    assert await store.read(lambda tx: tx.quotas.build_file_bytes(team.id)) == MIB + 1


async def test_there_is_a_limit_also_where_no_quota_is_set(files, store, team):
    full = build_files.MOST_OF_TEAM - MIB
    await store.write(lambda tx: tx.quotas.put_build_file(team.id, "x", full, 9e9))
    with pytest.raises(QuotaExceeded, match="GiB"):
        await files.keep(BuildFile(team.id, "usr_1", DIGEST), never(), 2 * MIB)


async def test_what_no_build_used_for_a_week_makes_room(files, store, team):
    await limit(store, team, 3)
    old = BuildFile(team.id, "usr_1", DIGEST)
    await files.keep(old, pieces(2 * MIB))
    os.utime(files._path(old), (1000.0, 1000.0))
    await store.write(lambda tx: tx.quotas.put_build_file(team.id, old.key, 2 * MIB, 1000.0))
    new = BuildFile(team.id, "usr_1", "cd" * 32)
    await files.keep(new, pieces(2 * MIB), 2 * MIB)
    assert (files.has(old), files.has(new)) == (False, True)
