"""A btrfs of our own in a sparse file, for hosts whose data directory lies on something else."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paddock.adapters.providers.local.storage.faults import NotHere, explained
from paddock.adapters.providers.local.storage.mounts import mount_of, mounts_everywhere
from paddock.adapters.providers.local.storage.volumes import abandoned_drafts, draft_name
from paddock.domain.errors import Broken, Conflict

_SHARE_OF_FREE_DISK = 0.9
_LEAST_MIB = 256
_MAGIC, _MAGIC_AT = b"_BHRfS_M", 0x10040


def image_of(data_dir: Path) -> Path:
    return data_dir / "pool.img"


def is_mounted(data_dir: Path) -> bool:
    return os.path.ismount(data_dir / "pool") and mount_of(data_dir / "pool").kind == "btrfs"


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """One process at a time decides what the pool is."""
    with (data_dir / "pool.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def mount_pool(data_dir: Path, size_mib: int | None) -> list[str]:
    """Mount the image at `pool`, made first where there is none; returns what is worth a note.

    NotHere when the host cannot do so, Broken when there is an image and it cannot be mounted:
    volumes live in it, so nothing else may take its place. The lock is the caller's.
    """
    image, pool = image_of(data_dir), data_dir / "pool"
    if not is_mounted(data_dir):
        if os.geteuid() != 0:
            raise NotHere("mounting a pool image needs root")
        pool.mkdir(exist_ok=True)
        if image.exists():
            _mount_existing(image, pool)
        else:
            _mount_new(image, pool, size_mib)
    return _overcommitment(image)


def unmount_pool(data_dir: Path) -> None:
    """Unmount and detach the image; absent is success, Conflict when a volume is in use."""
    data_dir = data_dir.resolve()
    if not data_dir.is_dir():
        return
    with locked(data_dir):
        if not (image_of(data_dir).exists() and is_mounted(data_dir)):
            return
        pool = data_dir / "pool"
        if users := _users(pool):
            raise Conflict(
                f"the pool {pool} is in use by {len(users)} mounts, such as {users[0]}",
                remediation="stop the sandboxes of this data directory first",
            )
        done = _run("umount", str(pool))
        if done.returncode:
            raise Conflict(
                f"the pool {pool} could not be unmounted: {_last_line(done)}",
                remediation=f"see who uses it with: fuser -vm {pool}",
            )


def _users(pool: Path) -> list[str]:
    """Mount points, in any namespace, of overlays and binds that live on the pool.

    A whole copy of the pool's own mount in another namespace does not count: it was inherited.
    """
    device = mount_of(pool).device
    inside = f"upperdir={pool}/"
    return [
        mount.point
        for mount in mounts_everywhere()
        if (mount.device == device and mount.root != "/")
        or (mount.kind == "overlay" and inside in mount.options)
    ]


def _mount_existing(image: Path, pool: Path) -> None:
    with image.open("rb") as content:
        content.seek(_MAGIC_AT)
        sound = content.read(len(_MAGIC)) == _MAGIC
    failure = _mount(image, pool) if sound else "it holds no btrfs file system"
    if failure:
        raise Broken(
            f"the pool image {image} cannot be mounted: {failure}",
            remediation=f"the volumes are in it: try `btrfs check {image}`, or take files out "
            f"with `btrfs restore {image} DIRECTORY`; to begin anew without them, move it away",
        )


def _mount_new(image: Path, pool: Path, size_mib: int | None) -> None:
    if any(pool.iterdir()):
        raise NotHere(f"{pool} already holds volumes as plain directories")
    if not shutil.which("mkfs.btrfs"):
        raise NotHere("mkfs.btrfs is missing (Debian and Ubuntu: apt install btrfs-progs)")
    for leftover in abandoned_drafts(image.parent):
        leftover.unlink()
    draft = image.with_name(draft_name())
    try:
        with explained(image):
            _make_image(draft, size_mib)
        # Attached under its final name: that name is how the next process recognises it.
        draft.rename(image)
        if failure := _mount(image, pool):
            image.unlink()
            raise NotHere(f"a pool image cannot be mounted ({failure})")
    finally:
        draft.unlink(missing_ok=True)


def _make_image(draft: Path, size_mib: int | None) -> None:
    disk = os.statvfs(draft.parent)
    free_mib = int(disk.f_bavail * disk.f_frsize * _SHARE_OF_FREE_DISK) >> 20
    size_mib = min(free_mib, size_mib or free_mib)
    if size_mib < _LEAST_MIB:
        raise NotHere(f"a pool image needs {_LEAST_MIB} MiB and gets {size_mib} MiB")
    with draft.open("xb") as content:
        content.truncate(size_mib << 20)
    draft.chmod(0o600)
    done = _run("mkfs.btrfs", "--quiet", "--metadata", "single", "--data", "single", str(draft))
    if done.returncode:
        raise NotHere(f"mkfs.btrfs failed ({_last_line(done)})")


def _mount(image: Path, pool: Path) -> str:
    """Why it failed, or nothing. An image that is attached already is never attached again."""
    attached = _run("losetup", "--associated", str(image), "--noheadings", "--output", "NAME")
    device = attached.stdout.split()
    command = ("noatime", device[0]) if device else ("noatime,loop", str(image))
    done = _run("mount", "-t", "btrfs", "-o", *command, str(pool))
    return _last_line(done) if done.returncode else ""


def _overcommitment(image: Path) -> list[str]:
    """The image grows as it fills; when the disk below is full first, the pool breaks."""
    if not image.exists():
        return []
    size, taken = image.stat().st_size, image.stat().st_blocks * 512
    disk = os.statvfs(image)
    free = disk.f_bavail * disk.f_frsize
    if size - taken <= free:
        return []
    return [
        f"{image} may grow by {(size - taken) >> 20} MiB but its disk has only {free >> 20} MiB "
        "free: when that disk is full the pool turns read-only"
    ]


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", f"{command[0]} is missing")


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    # mount(8) ends with a hint to read dmesg; what it found stands before.
    told = [line for line in lines if "dmesg(1)" not in line] or lines
    return told[-1].strip() if told else f"exit status {done.returncode}"
