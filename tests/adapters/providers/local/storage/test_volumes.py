"""What every driver does alike."""

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

from paddock.adapters.providers.local.storage import Storage
from paddock.domain.errors import Conflict, LimitExceeded, NotFound

from .conftest import OWNER
from .disks import fill, run


def names(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir()}


def test_a_new_volume_has_its_three_parts_and_belongs_to_its_owner(
    storage: Storage, volume: Path
) -> None:
    assert names(volume) == {"upper", "work", "guest"}
    upper = (volume / "upper").stat()
    assert (upper.st_uid, upper.st_gid, stat.S_IMODE(upper.st_mode)) == (OWNER, OWNER, 0o755)
    assert stat.S_IMODE(volume.stat().st_mode) == 0o700
    assert names(volume.parent) == {"one"}


def test_only_root_enters_the_pool_and_its_directories(storage: Storage) -> None:
    found = [storage.pool, *storage.pool.iterdir()]
    assert {stat.S_IMODE(each.stat().st_mode) for each in found} == {0o700}


def test_a_volume_that_exists_is_not_made_again(storage: Storage, volume: Path) -> None:
    (volume / "upper" / "kept").write_text("kept")
    with pytest.raises(Conflict, match="exists already"):
        storage.create(volume, OWNER)
    with pytest.raises(Conflict):
        storage.clone(volume, volume)
    assert (volume / "upper" / "kept").read_text() == "kept"
    assert names(volume.parent) == {"one"}


def test_a_clone_and_its_source_do_not_see_each_others_changes(
    storage: Storage, volume: Path
) -> None:
    shared = volume / "upper" / "shared"
    shared.write_text("before")
    (volume / "guest" / "run.log").write_text("line\n")
    copy = storage.pool / "snapshots" / "copy"
    storage.clone(volume, copy)

    shared.write_text("changed in the source")
    (volume / "upper" / "new").write_text("")
    (copy / "upper" / "own").write_text("")
    assert (copy / "upper" / "shared").read_text() == "before"
    (copy / "upper" / "shared").write_text("changed in the copy")
    assert shared.read_text() == "changed in the source"
    assert names(copy / "upper") == {"shared", "own"}
    assert names(volume / "upper") == {"shared", "new"}
    assert (copy / "guest" / "run.log").read_text() == "line\n"


def test_a_clone_keeps_all_that_an_overlay_writes(storage: Storage, volume: Path) -> None:
    upper = volume / "upper"
    (upper / "opaque").mkdir()
    os.setxattr(upper / "opaque", "trusted.overlay.opaque", b"y")
    os.mknod(upper / "whiteout", stat.S_IFCHR, os.makedev(0, 0))
    (upper / "first").write_text("linked")
    (upper / "second").hardlink_to(upper / "first")
    os.setxattr(upper / "first", "user.note", b"\x00\xff")
    os.setxattr(upper / "first", "security.capability", CAPABILITY)
    (upper / "link").symlink_to("/nowhere")
    os.mkfifo(upper / "pipe")
    os.chown(upper / "link", OWNER + 1000, OWNER + 1000, follow_symlinks=False)
    os.chown(upper / "pipe", OWNER + 5, OWNER + 6)
    (upper / "pipe").chmod(0o4750)
    os.utime(upper / "opaque", ns=(1_000_000_007, 2_000_000_009))

    copy = storage.pool / "volumes" / "two"
    storage.clone(volume, copy)

    upper = copy / "upper"
    assert os.getxattr(upper / "opaque", "trusted.overlay.opaque") == b"y"
    assert (upper / "opaque").stat().st_mtime_ns == 2_000_000_009
    whiteout = (upper / "whiteout").lstat()
    assert stat.S_ISCHR(whiteout.st_mode)
    assert whiteout.st_rdev == 0
    assert (upper / "first").stat().st_ino == (upper / "second").stat().st_ino
    assert os.getxattr(upper / "second", "user.note") == b"\x00\xff"
    assert os.getxattr(upper / "first", "security.capability") == CAPABILITY
    assert (upper / "link").readlink() == Path("/nowhere")
    assert (upper / "link").lstat().st_uid == OWNER + 1000
    pipe = (upper / "pipe").lstat()
    assert (pipe.st_uid, pipe.st_gid, stat.S_IMODE(pipe.st_mode)) == (OWNER + 5, OWNER + 6, 0o4750)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700


CAPABILITY = bytes.fromhex("0000000200040000000000000000000000000000")


def test_a_sparse_file_stays_sparse_in_a_clone(storage: Storage, volume: Path) -> None:
    with (volume / "upper" / "sparse").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(512 << 20)
        file.write(b"in the middle")
    copy = storage.pool / "volumes" / "two"
    storage.clone(volume, copy)
    found = (copy / "upper" / "sparse").stat()
    assert found.st_size == 1 << 30
    assert found.st_blocks * 512 < 1 << 20
    with (copy / "upper" / "sparse").open("rb") as file:
        file.seek(512 << 20)
        assert file.read(13) == b"in the middle"


def test_a_clone_is_free_of_what_the_sources_overlay_left_in_its_work_directory(
    storage: Storage, volume: Path
) -> None:
    (volume / "work" / "work" / "incompat").mkdir(parents=True)
    (volume / "work" / "work").chmod(0)
    copy = storage.pool / "volumes" / "two"
    storage.clone(volume, copy)
    assert names(copy / "work") == set()
    assert names(volume / "work") == {"work"}


def test_an_overlay_works_on_a_clone_while_the_source_is_mounted(
    storage: Storage, volume: Path, tmp_path: Path
) -> None:
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "removed").write_text("")
    merged, second = tmp_path / "merged", tmp_path / "second"
    merged.mkdir()
    second.mkdir()
    mount_overlay(lower, volume, merged)
    (merged / "removed").unlink()
    (merged / "made").write_text("here")
    copy = storage.pool / "volumes" / "two"
    storage.clone(volume, copy)
    mount_overlay(lower, copy, second)
    (merged / "made").write_text("changed")
    assert names(second) == {"made"}
    assert (second / "made").read_text() == "here"
    run("umount", str(second))
    run("umount", str(merged))


def mount_overlay(lower: Path, volume: Path, point: Path) -> None:
    parts = f"lowerdir={lower},upperdir={volume}/upper,workdir={volume}/work"
    run("mount", "-t", "overlay", "-o", parts, "overlay", str(point))


def test_cloning_what_does_not_exist_is_not_found(storage: Storage) -> None:
    with pytest.raises(NotFound, match="absent"):
        storage.clone(storage.pool / "volumes" / "absent", storage.pool / "volumes" / "two")
    assert names(storage.pool / "volumes") == set()


def test_deleting_is_repeatable(storage: Storage, volume: Path) -> None:
    storage.delete(volume)
    storage.delete(volume)
    assert names(volume.parent) == set()


def test_a_half_made_volume_and_a_plain_directory_are_deleted_too(storage: Storage) -> None:
    stray = storage.pool / "volumes" / "stray"
    (stray / "upper" / "deep").mkdir(parents=True)
    (stray / "upper" / "deep" / "file").write_text("")
    storage.delete(stray)
    assert names(stray.parent) == set()


def test_protected_files_odd_names_and_deep_trees_are_deleted(
    storage: Storage, volume: Path
) -> None:
    upper = volume / "upper"
    for name in (b"-rf", b"new\nline", b"\xff\xfe", b"*", b" ", b".lifted-0"):
        (upper / os.fsdecode(name)).write_text("")
    deep = make_deep_tree(upper, depth=3000)
    (upper / "dir").mkdir()
    (upper / "dir" / "fixed").write_text("")
    os.mknod(upper / "dir" / "null", stat.S_IFCHR, os.makedev(1, 3))
    if protects(upper / "dir" / "fixed"):
        run("chattr", "+a", str(upper / "dir"))
        run("chattr", "+i", str(upper))
    storage.delete(volume)
    assert deep > os.pathconf("/", "PC_PATH_MAX")
    assert names(volume.parent) == set()


def make_deep_tree(top: Path, depth: int) -> int:
    """Deeper than a path can name; returns how long its path would be."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("nested", dir_fd=here)
        below = os.open("nested", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    return depth * len("nested/")


def protects(path: Path) -> bool:
    """Whether the file system knows the immutable bit at all."""
    return (
        subprocess.run(["chattr", "+i", str(path)], capture_output=True, check=False).returncode
        == 0
    )


def test_what_is_mounted_inside_a_volume_is_never_deleted(
    storage: Storage, volume: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    inside = volume / "upper" / "mounted"
    inside.mkdir()
    run("mount", "--bind", str(precious), str(inside))
    if storage.name == "btrfs":  # the kernel takes the mount off and destroys what is below
        storage.delete(volume)
    else:
        with pytest.raises(Conflict, match="mounted"):
            storage.delete(volume)
        run("umount", str(inside))
    assert (precious / "file").read_text() == "kept"


def test_usage_grows_with_what_is_written(storage: Storage, volume: Path) -> None:
    before = storage.usage(volume)
    (volume / "upper" / "data").write_bytes(os.urandom(8 << 20))
    after = storage.usage(volume)
    assert 8 << 20 <= after - before < 9 << 20


def test_a_limit_is_enforced_exactly_where_the_driver_says_so(
    storage: Storage, volume: Path
) -> None:
    storage.set_limit(volume, 32 << 20)
    written = fill(volume / "upper" / "data", 64)
    assert (written < 33) is storage.enforces_disk_limit
    storage.set_limit(volume, None)
    assert fill(volume / "upper" / "data", 64) == 64


@pytest.mark.parametrize(
    "storage",
    [
        *("btrfs-native", "copy-ext4"),
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("btrfs-image", "reflink-xfs", "reflink-btrfs", "copy-tmpfs")
        ),
    ],
    indirect=True,
)
def test_a_full_disk_is_a_limit_exceeded_that_names_the_path(
    storage: Storage, volume: Path
) -> None:
    assert fill(volume / "upper" / "data", 500) <= 400
    fill_with_small_files(volume / "guest")
    with pytest.raises(LimitExceeded, match=r"volumes/copy-\d+ is full") as caught:
        for number in range(20_000):  # where a copy shares its blocks, one costs next to nothing
            storage.clone(volume, storage.pool / "volumes" / f"copy-{number}")
    assert "delete sandboxes" in caught.value.remediation
    assert not [name for name in names(storage.pool / "volumes") if name.startswith(".tmp")]
    assert names(volume) == {"upper", "work", "guest"}


def fill_with_small_files(directory: Path) -> None:
    for number in range(100_000):
        try:
            (directory / f"{number}").write_bytes(b"x" * 4096)
        except OSError as error:
            assert error.errno == errno.ENOSPC
            return
