"""A storage of every kind, each on a real file system."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock.adapters.providers.local.storage import Storage, open_storage

from .disks import disk, unmounted_afterwards

OWNER = 100000


@dataclass(frozen=True)
class Kind:
    """Which driver on which file system; no file system means the one that tests run on."""

    driver: str
    filesystem: str | None = None


KINDS = {
    "btrfs-image": Kind("btrfs-loop"),
    "btrfs-native": Kind("btrfs", "btrfs"),
    "reflink-xfs": Kind("reflink", "xfs"),
    "reflink-btrfs": Kind("reflink", "btrfs"),
    "copy-ext4": Kind("copy", "ext4"),
    "copy-tmpfs": Kind("copy", "tmpfs"),
}


def open_kind(kind: Kind, where: Path, stack: ExitStack) -> Storage:
    stack.enter_context(unmounted_afterwards(where))
    if kind.filesystem:
        where = stack.enter_context(disk(kind.filesystem, 400, where))
    return open_storage(where / "data", driver=kind.driver, pool_size_mib=400)


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    with ExitStack() as stack:
        yield open_kind(KINDS[request.param], tmp_path, stack)


@pytest.fixture
def btrfs(tmp_path: Path) -> Iterator[Storage]:
    with ExitStack() as stack:
        yield open_kind(KINDS["btrfs-image"], tmp_path, stack)


@pytest.fixture
def volume(storage: Storage) -> Path:
    path = storage.pool / "volumes" / "one"
    storage.create(path, OWNER)
    return path
