"""What only subvolumes and their quotas can do."""

import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from paddock.adapters.providers.local.storage import Storage, ioctls, open_storage
from paddock.adapters.providers.local.storage.btrfs import is_subvolume
from paddock.adapters.providers.local.storage.quotas import Quotas

from .conftest import OWNER
from .disks import disk, fill, run, unmounted_afterwards

SET_FLAGS, READ_ONLY = 0x4008941A, 2


@pytest.fixture
def volume(btrfs: Storage) -> Path:
    path = btrfs.pool / "volumes" / "one"
    btrfs.create(path, OWNER)
    return path


def commit(storage: Storage) -> None:
    with ioctls.opened(storage.pool) as directory:
        ioctls.sync_filesystem(directory)


def used_bytes(storage: Storage) -> int:
    commit(storage)
    disk = os.statvfs(storage.pool)
    return (disk.f_blocks - disk.f_bfree) * disk.f_bsize


def test_volumes_are_subvolumes_and_clones_too(btrfs: Storage, volume: Path) -> None:
    btrfs.clone(volume, volume.with_name("two"))
    assert is_subvolume(volume)
    assert is_subvolume(volume.with_name("two"))


def test_the_cost_of_a_clone_does_not_grow_with_what_it_holds(btrfs: Storage, volume: Path) -> None:
    for number in range(500):
        (volume / "upper" / f"{number}").write_bytes(b"x" * 8192)
    (volume / "upper" / "large").write_bytes(os.urandom(32 << 20))
    before = used_bytes(btrfs)
    btrfs.clone(volume, volume.with_name("copy"))
    assert used_bytes(btrfs) - before < 1 << 20
    assert (volume.with_name("copy") / "upper" / "large").stat().st_size == 32 << 20


def test_a_program_that_writes_beyond_the_limit_is_refused_with_edquot(
    btrfs: Storage, volume: Path
) -> None:
    btrfs.set_limit(volume, 16 << 20)
    with pytest.raises(OSError, match="quota") as caught:
        for _ in range(32):
            with (volume / "upper" / "data").open("ab") as file:
                file.write(os.urandom(1 << 20))
    assert caught.value.errno == errno.EDQUOT
    assert btrfs.usage(volume) <= 16 << 20


def test_files_can_be_deleted_when_the_limit_is_reached_and_make_room(
    btrfs: Storage, volume: Path
) -> None:
    btrfs.set_limit(volume, 16 << 20)
    (volume / "upper" / "small").write_text("")
    fill(volume / "upper" / "large", 32)
    with pytest.raises(OSError, match="quota"):
        (volume / "upper" / "another").write_bytes(bytes(1 << 20))
    (volume / "upper" / "small").unlink()
    (volume / "upper" / "large").unlink()
    assert fill(volume / "upper" / "again", 8) == 8


def test_a_limit_also_holds_for_subvolumes_made_inside(btrfs: Storage, volume: Path) -> None:
    btrfs.set_limit(volume, 16 << 20)
    with ioctls.opened(volume / "guest") as directory:
        ioctls.create_subvolume(directory, "hidden")
    assert fill(volume / "guest" / "hidden" / "data", 64) <= 16


def test_a_clones_limit_is_for_what_it_adds(btrfs: Storage, volume: Path) -> None:
    fill(volume / "upper" / "inherited", 40)
    commit(btrfs)
    copy = volume.with_name("two")
    btrfs.clone(volume, copy)
    btrfs.set_limit(copy, 16 << 20)
    assert btrfs.usage(copy) < 1 << 20
    assert 14 <= fill(copy / "upper" / "own", 64) <= 16
    assert btrfs.usage(volume) >= 40 << 20


def test_a_clone_of_a_full_volume_can_write(btrfs: Storage, volume: Path) -> None:
    btrfs.set_limit(volume, 16 << 20)
    fill(volume / "upper" / "data", 64)
    btrfs.clone(volume, volume.with_name("two"))
    btrfs.set_limit(volume.with_name("two"), 16 << 20)
    assert fill(volume.with_name("two") / "upper" / "more", 8) == 8


def test_nested_subvolumes_are_deleted_with_their_volume(btrfs: Storage, volume: Path) -> None:
    with ioctls.opened(volume / "guest") as directory:
        for number in range(100):
            ioctls.create_subvolume(directory, f"inner-{number}")
    with ioctls.opened(volume / "guest" / "inner-7") as directory:
        ioctls.create_subvolume(directory, "innermost")
    btrfs.delete(volume)
    assert list(volume.parent.iterdir()) == []


@pytest.mark.parametrize("verb", ["empty", "delete"])
def test_read_only_subvolumes_inside_do_not_keep_a_volume(
    btrfs: Storage, volume: Path, verb: str
) -> None:
    """Each within another, below a path that is longer than the kernel can name."""
    with ExitStack() as held:
        place = held.enter_context(ioctls.opened(volume / "upper"))
        for _ in range(30):
            os.mkdir("d" * 200, dir_fd=place)
            place = os.open("d" * 200, os.O_RDONLY, dir_fd=place)
            held.callback(os.close, place)
        for _ in range(3):
            ioctls.create_subvolume(place, "inner")
            inner = os.open("inner", os.O_RDONLY, dir_fd=place)
            held.callback(os.close, inner)
            held.callback(fcntl.ioctl, inner, SET_FLAGS, struct.pack("=Q", READ_ONLY))
            place = inner
    getattr(btrfs, verb)(volume)
    assert not volume.exists() or list((volume / "upper").iterdir()) == []


def test_a_directory_that_holds_a_volume_is_deleted_with_it(btrfs: Storage) -> None:
    template = btrfs.pool / "templates" / "digest"
    (template / "rootfs" / "etc").mkdir(parents=True)
    btrfs.create(template / "seed", OWNER)
    (template / "seed" / "upper" / "file").write_text("")
    btrfs.delete(template)
    assert list(template.parent.iterdir()) == []


def test_a_volume_made_immutable_is_deleted(btrfs: Storage, volume: Path) -> None:
    run("chattr", "+i", str(volume))
    btrfs.delete(volume)
    assert not volume.exists()


def test_deleting_works_on_a_full_disk_and_soon_gives_the_space_back(
    btrfs: Storage, volume: Path
) -> None:
    for number in range(3000):  # so that the file system has given metadata some room
        (volume / "upper" / f"{number}").write_bytes(bytes(2000))
    commit(btrfs)
    other = volume.with_name("other")
    btrfs.create(other, OWNER)
    assert fill(other / "upper" / "data", 500) < 400
    btrfs.delete(other)
    btrfs.create(other, OWNER)
    eventually(lambda: fill(other / "upper" / "data", 100) == 100)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_sweeping_forgets_the_numbers_of_volumes_that_are_gone(
    btrfs: Storage, volume: Path
) -> None:
    copy = volume.with_name("two")
    fill(volume / "upper" / "shared", 4)
    commit(btrfs)
    btrfs.clone(volume, copy)
    btrfs.delete(volume)
    assert len(swept_qgroups(btrfs)) == 3, "the copy's two, and the source's: they share blocks"
    btrfs.delete(copy)
    eventually(lambda: swept_qgroups(btrfs) == [])


def test_a_volume_made_after_a_mount_does_not_inherit_the_counts_of_a_destroyed_one(
    tmp_path: Path,
) -> None:
    with unmounted_afterwards(tmp_path):
        storage = open_storage(tmp_path, driver="btrfs", pool_size_mib=400)
        kept, destroyed = (storage.pool / "volumes" / name for name in ("kept", "destroyed"))
        storage.create(kept, OWNER)
        storage.create(destroyed, OWNER)
        fill(destroyed / "upper" / "data", 4)
        commit(storage)
        run("cp", "--reflink=always", f"{destroyed}/upper/data", f"{kept}/upper/data")
        storage.delete(destroyed)
        commit(storage)
        eventually(lambda: len(list_subvolumes(storage)) == 1)
        storage.close(unmount=True)
        storage = open_storage(tmp_path, driver="btrfs", pool_size_mib=400)
        storage.create(destroyed, OWNER)
        assert storage.usage(destroyed) < 1 << 20


def test_a_group_that_was_left_behind_does_not_prevent_a_new_volume(tmp_path: Path) -> None:
    with disk("btrfs", 400, tmp_path) as point:
        with ioctls.opened(point) as directory:
            ioctls.enable_quota(directory, ioctls.SIMPLE_QUOTA)
        storage = open_storage(point / "data")
        storage.create(storage.pool / "volumes" / "first", OWNER)
        highest = max(int(name.split("_")[1]) for name in qgroups(storage))
        with ioctls.opened(storage.pool) as directory:
            for number in range(1, 4):
                ioctls.create_qgroup(directory, 100 << 48 | highest + number)
        run("umount", str(point))
        run("mount", "-o", "loop", str(tmp_path / "btrfs.img"), str(point))
        storage = open_storage(point / "data")
        storage.create(storage.pool / "volumes" / "second", OWNER)


def test_a_group_of_the_hosts_own_uses_no_ids_up(tmp_path: Path) -> None:
    with disk("btrfs", 400, tmp_path) as point:
        with ioctls.opened(point) as directory:
            ioctls.enable_quota(directory, ioctls.SIMPLE_QUOTA)
            ioctls.create_qgroup(directory, 1 << 48 | 1 << 40)
        storage = open_storage(point / "data")
        storage.create(storage.pool / "volumes" / "first", OWNER)
        ids = [int(name.split("_")[1]) for name in qgroups(storage) if not name.startswith("1_")]
        assert max(ids) < 1000


def list_subvolumes(storage: Storage) -> list[str]:
    """Also destroyed ones that the kernel has not taken apart yet."""
    every = run("btrfs", "subvolume", "list", str(storage.pool))
    return (every + run("btrfs", "subvolume", "list", "-d", str(storage.pool))).splitlines()


def swept_qgroups(storage: Storage) -> list[str]:
    commit(storage)
    storage.sweep()
    return qgroups(storage)


def qgroups(storage: Storage) -> list[str]:
    with ioctls.opened(storage.pool) as directory:
        numbers = Path(f"/sys/fs/btrfs/{ioctls.filesystem_uuid(directory)}/qgroups")
    return sorted(e.name for e in numbers.iterdir() if e.is_dir() and e.name != "0_5")


def test_classic_quotas_limit_all_that_a_volume_refers_to(tmp_path: Path) -> None:
    with ExitStack() as stack:
        point = stack.enter_context(disk("btrfs", 400, tmp_path))
        with ioctls.opened(point) as directory:
            ioctls.enable_quota(directory, ioctls.CLASSIC_QUOTA)
        storage = open_storage(point / "data", driver="btrfs")
        assert storage.enforces_disk_limit
        volume = storage.pool / "volumes" / "one"
        storage.create(volume, OWNER)
        storage.set_limit(volume, 16 << 20)
        assert fill(volume / "upper" / "data", 64) <= 16
        assert storage.usage(volume) >= 10 << 20
        storage.delete(volume)


def test_the_hosts_own_btrfs_is_used_as_it_is_and_its_quotas_are_not_switched_on(
    tmp_path: Path,
) -> None:
    with disk("btrfs", 400, tmp_path) as point:
        storage = open_storage(point / "data")
        assert storage.name == "btrfs"
        assert not storage.enforces_disk_limit
        assert not Quotas(point, ours=False).enforced
        assert "btrfs quota enable --simple" in storage.notes[0]
        assert not (point / "data" / "pool.img").exists()


def test_simple_quotas_that_the_host_switched_on_are_used(tmp_path: Path) -> None:
    with disk("btrfs", 400, tmp_path) as point:
        with ioctls.opened(point) as directory:
            ioctls.enable_quota(directory, ioctls.SIMPLE_QUOTA)
        storage = open_storage(point / "data")
        assert storage.enforces_disk_limit
        assert storage.notes == []
        volume = storage.pool / "volumes" / "one"
        storage.create(volume, OWNER)
        storage.set_limit(volume, 16 << 20)
        assert fill(volume / "upper" / "data", 64) <= 16


def test_a_volume_that_another_driver_made_can_be_cloned(tmp_path: Path) -> None:
    with disk("btrfs", 400, tmp_path) as point:
        plain = open_storage(point / "data", driver="copy")
        volume = plain.pool / "volumes" / "one"
        plain.create(volume, OWNER)
        (volume / "upper" / "file").write_text("content")
        storage = open_storage(point / "data", driver="btrfs")
        storage.clone(volume, volume.with_name("two"))
        assert is_subvolume(volume.with_name("two"))
        assert (volume.with_name("two") / "upper" / "file").read_text() == "content"
        assert (volume.with_name("two")).stat().st_uid == OWNER
        storage.delete(volume)


def test_preallocated_space_counts(btrfs: Storage, volume: Path) -> None:
    with (volume / "upper" / "preallocated").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8 << 20)
    assert btrfs.usage(volume) >= 8 << 20
