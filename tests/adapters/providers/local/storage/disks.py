"""Small real file systems in loop images, unmounted again whatever happens."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paddock.adapters.providers.local.storage.mounts import mounts
from tests.root import require_root

_MAKERS = {
    "btrfs": ("mkfs.btrfs", "--quiet", "--metadata", "single"),
    "xfs": ("mkfs.xfs", "-q", "-m", "reflink=1"),
    "ext4": ("mkfs.ext4", "-q"),
}


@contextmanager
def disk(kind: str, size_mib: int, where: Path) -> Iterator[Path]:
    """A mounted file system of its own; everything mounted below goes with it."""
    require_root()
    point = where / f"disk-{kind}"
    point.mkdir()
    if kind == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(point))
    else:
        image = where / f"{kind}.img"
        with image.open("wb") as content:
            content.truncate(size_mib << 20)
        run(*_MAKERS[kind], str(image))
        run("mount", "-o", "loop", str(image), str(point))
    with unmounted_afterwards(point):
        yield point


@contextmanager
def unmounted_afterwards(where: Path) -> Iterator[None]:
    require_root()
    try:
        yield
    finally:
        points = [m.point for m in mounts() if Path(m.point).is_relative_to(where)]
        for point in reversed(points):
            # Busy when another process made a mount namespace meanwhile and so holds a copy of
            # what is mounted inside; ours goes all the same.
            busy = subprocess.run(["umount", point], capture_output=True, check=False).returncode
            if busy:
                run("umount", "--lazy", point)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def attached_images() -> list[str]:
    return run("losetup", "--all", "--noheadings", "--output", "BACK-FILE").split()


def fill(path: Path, most_mib: int) -> int:
    """Write until it is refused; the MiB that went in."""
    block = os.urandom(1 << 20)
    with path.open("wb", buffering=0) as file:
        for written in range(most_mib):
            try:
                file.write(block)
                if written % 8 == 7:
                    os.fsync(file.fileno())
            except OSError:
                return written
    return most_mib
