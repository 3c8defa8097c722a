"""Which storage a data directory gets, and what happens when it cannot be had."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddock.adapters.providers.local.storage import open_storage, unmount_pool
from paddock.adapters.providers.local.storage.pool import is_mounted
from paddock.domain.errors import Broken, Conflict, InvalidRequest, LimitExceeded, Unsupported

from .conftest import OWNER
from .disks import attached_images, disk, run, unmounted_afterwards


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    with unmounted_afterwards(tmp_path):
        yield tmp_path / "data"


@pytest.fixture
def hide_mkfs(as_root: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, everything needed is found except mkfs.btrfs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("cp", "rm", "du", "setpriv", "mount", "umount", "losetup"):
        (programs / name).symlink_to(run("which", name).strip())
    return lambda: monkeypatch.setenv("PATH", str(programs))


def test_auto_makes_a_btrfs_image_where_the_host_has_no_btrfs(data_dir: Path) -> None:
    storage = open_storage(data_dir, pool_size_mib=300)
    assert storage.name == "btrfs"
    assert storage.enforces_disk_limit
    assert storage.notes == [f"the host's own btrfs: {data_dir} is on ext4"]
    image = (data_dir / "pool.img").stat()
    assert image.st_size == 300 << 20
    assert image.st_blocks * 512 < 20 << 20
    assert image.st_mode & 0o777 == 0o600


def test_an_image_is_never_larger_than_the_disk_below_can_hold(tmp_path: Path) -> None:
    with disk("ext4", 500, tmp_path) as point:
        free = os.statvfs(point).f_bavail * os.statvfs(point).f_frsize
        storage = open_storage(point / "data", pool_size_mib=10_000)
        assert (point / "data" / "pool.img").stat().st_size <= free * 0.9
        assert len(storage.notes) == 1


def test_a_disk_that_fills_up_below_the_image_is_noted(tmp_path: Path) -> None:
    with disk("ext4", 500, tmp_path) as point:
        open_storage(point / "data")
        (point / "ballast").write_bytes(bytes(200 << 20))
        notes = open_storage(point / "data").notes
        assert any("turns read-only" in note for note in notes)


def test_without_mkfs_auto_falls_back_to_sharing_extents_and_says_why(
    tmp_path: Path, hide_mkfs: Callable[[], None]
) -> None:
    with disk("xfs", 400, tmp_path) as point:
        hide_mkfs()
        storage = open_storage(point / "data")
        assert storage.name == "reflink"
        assert any("mkfs.btrfs is missing" in note for note in storage.notes)


def test_without_mkfs_and_reflinks_auto_falls_back_to_copies(
    data_dir: Path, hide_mkfs: Callable[[], None]
) -> None:
    hide_mkfs()
    storage = open_storage(data_dir)
    assert storage.name == "copy"
    assert len(storage.notes) == 3
    assert "apt install btrfs-progs" in storage.notes[1]


def test_a_driver_that_cannot_work_is_refused_with_the_reason(
    data_dir: Path, hide_mkfs: Callable[[], None]
) -> None:
    hide_mkfs()
    with pytest.raises(Unsupported, match=r"mkfs\.btrfs is missing"):
        open_storage(data_dir, driver="btrfs")
    with pytest.raises(Unsupported, match="cannot share extents"):
        open_storage(data_dir, driver="reflink")
    with pytest.raises(InvalidRequest, match="zfs"):
        open_storage(data_dir, driver="zfs")


def test_a_disk_too_small_for_an_image_is_no_place_for_one(tmp_path: Path) -> None:
    with disk("ext4", 64, tmp_path) as point:
        storage = open_storage(point / "data")
        assert storage.name == "copy"
        assert any("needs 256 MiB" in note for note in storage.notes)


def test_volumes_in_plain_directories_are_not_hidden_by_an_image_later(data_dir: Path) -> None:
    plain = open_storage(data_dir, driver="copy")
    plain.create(plain.pool / "volumes" / "one", OWNER)
    again = open_storage(data_dir)
    assert again.name == "copy"
    assert any("already holds volumes" in note for note in again.notes)


def test_volumes_in_an_image_are_not_hidden_by_another_driver(data_dir: Path) -> None:
    open_storage(data_dir, pool_size_mib=300)
    with pytest.raises(Conflict, match=r"pool\.img"):
        open_storage(data_dir, driver="copy")


def test_what_was_stored_is_there_again_after_unmounting(data_dir: Path) -> None:
    storage = open_storage(data_dir, pool_size_mib=300)
    volume = storage.pool / "volumes" / "one"
    storage.create(volume, OWNER)
    (volume / "upper" / "file").write_text("kept")
    storage.close()
    assert is_mounted(data_dir)
    storage.close(unmount=True)
    assert not is_mounted(data_dir)
    assert str(data_dir / "pool.img") not in attached_images()

    again = open_storage(data_dir)
    assert (volume / "upper" / "file").read_text() == "kept"
    assert again.enforces_disk_limit
    again.set_limit(volume, 1 << 20)


def test_a_pool_in_use_is_not_unmounted(data_dir: Path, tmp_path: Path) -> None:
    storage = open_storage(data_dir, pool_size_mib=300)
    volume = storage.pool / "volumes" / "one"
    storage.create(volume, OWNER)
    merged, lower = tmp_path / "merged", tmp_path / "lower"
    merged.mkdir()
    lower.mkdir()
    overlay = f"lowerdir={lower},upperdir={volume}/upper,workdir={volume}/work"
    script = f"mount -t overlay -o {overlay} overlay {merged} && echo ready && read line"
    with subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == b"ready\n"
        with pytest.raises(Conflict, match="merged"):
            unmount_pool(data_dir)
        assert is_mounted(data_dir)
        other.communicate(b"\n")
    unmount_pool(data_dir)
    assert not is_mounted(data_dir)
    unmount_pool(data_dir)


def test_a_pool_that_another_namespace_keeps_attached_is_not_attached_twice(data_dir: Path) -> None:
    open_storage(data_dir, pool_size_mib=300)
    with subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout
        other.stdout.readline()
        unmount_pool(data_dir)
        storage = open_storage(data_dir)
        storage.create(storage.pool / "volumes" / "one", OWNER)
        assert attached_images().count(str(data_dir / "pool.img")) == 1
        other.communicate(b"\n")


OPEN_AND_CREATE = """
import sys
from pathlib import Path
from paddock.adapters.providers.local.storage import open_storage
storage = open_storage(Path(sys.argv[1]), pool_size_mib=300)
for number in range(20):
    storage.create(storage.pool / "volumes" / f"{sys.argv[2]}-{number}", 100000)
print(storage.name)
"""


def test_processes_that_open_a_directory_at_once_share_one_pool(data_dir: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN_AND_CREATE, str(data_dir), name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b", "c", "d")
    ]
    results = [(*process.communicate(timeout=60), process.returncode) for process in processes]
    assert [(out, code) for out, _, code in results] == [("btrfs\n", 0)] * 4, results
    assert attached_images().count(str(data_dir / "pool.img")) == 1
    assert len(list((data_dir / "pool" / "volumes").iterdir())) == 80


def let_go(image: Path) -> None:
    """A process that starts a sandbox right now has a copy of all mounts for a moment."""
    for _ in range(200):
        if str(image) not in attached_images():
            return
        time.sleep(0.05)
    raise AssertionError(f"{image} is still in use")


@pytest.mark.parametrize("damage", ["superblock", "trees", "truncated"])
def test_a_damaged_image_is_named_with_the_way_out_and_left_alone(
    data_dir: Path, damage: str
) -> None:
    storage = open_storage(data_dir, pool_size_mib=300)
    storage.create(storage.pool / "volumes" / "one", OWNER)
    storage.close(unmount=True)
    image = data_dir / "pool.img"
    let_go(image)
    with image.open("r+b") as content:
        if damage == "superblock":
            content.seek(64 << 10)
            content.write(bytes(4096))
        elif damage == "trees":
            content.seek(1 << 20)
            content.write(os.urandom(40 << 20))
        else:
            content.truncate(4 << 20)
    with pytest.raises(Broken, match=str(image)) as caught:
        open_storage(data_dir)
    assert "btrfs restore" in caught.value.remediation
    assert image.exists()
    assert str(image) not in attached_images()


def test_a_data_directory_on_a_full_disk_is_explained(tmp_path: Path) -> None:
    with disk("tmpfs", 1, tmp_path) as point:
        run("mount", "-o", "remount,nr_inodes=2", str(point))
        with pytest.raises(LimitExceeded, match="full"):
            open_storage(point / "data", driver="copy")


def test_a_data_directory_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    with disk("tmpfs", 1, tmp_path) as point:
        run("mount", "-o", "remount,ro", str(point))
        with pytest.raises(Broken, match="read-only"):
            open_storage(point / "data", driver="copy")
