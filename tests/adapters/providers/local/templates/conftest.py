"""A template store on each kind of storage, and small root file systems to build."""

import itertools
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from paddock.adapters.providers.local.storage import Storage, open_storage
from paddock.adapters.providers.local.templates import TemplateStore
from paddock.domain.template import SourceKind, Template, TemplateSource

from ..storage.disks import unmounted_afterwards

OWNER = 100000
SetupRunner = Callable[[Path, Path | None, Sequence[str]], Awaitable[Path]]


@pytest.fixture(params=["btrfs-loop", "copy"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def storage(driver: str, tmp_path: Path) -> Iterator[Storage]:
    with unmounted_afterwards(tmp_path):
        yield open_storage(tmp_path / "data", driver=driver, pool_size_mib=300)


@pytest.fixture
def store(storage: Storage) -> TemplateStore:
    return TemplateStore(storage, storage.pool.parent)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


def make_tree(root: Path) -> Path:
    """A root file system in small."""
    for name in ("bin", "etc", "usr/bin", "usr/lib"):
        (root / name).mkdir(parents=True)
    (root / "usr/bin/tool").write_text("#!/bin/sh\n")
    (root / "usr/bin/tool").chmod(0o4755)
    (root / "usr/bin/same").hardlink_to(root / "usr/bin/tool")
    (root / "etc/mtab").symlink_to("/proc/mounts")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh")
    (root / "etc/group").write_text("root:x:0:\n")
    os.chown(root / "usr/lib", 33, 44)
    return root


def from_directory(path: Path, name: str = "small", setup: tuple[str, ...] = ()) -> Template:
    return Template(name, TemplateSource(SourceKind.DIRECTORY, str(path)), setup)


def from_tar(path: Path) -> Template:
    return Template("small", TemplateSource(SourceKind.TAR, str(path)))


def from_image(reference: str) -> Template:
    return Template("small", TemplateSource(SourceKind.IMAGE, reference))


async def no_setup(_lower: Path, _seed: Path | None, _commands: Sequence[str]) -> Path:
    raise AssertionError("there are no set-up commands")


class RecordingRunner:
    """Instead of a sandbox: notes what it was given, in the volume that it makes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._numbers = itertools.count()
        self.calls: list[tuple[Path, Path | None, tuple[str, ...]]] = []

    async def __call__(self, lower: Path, seed: Path | None, commands: Sequence[str]) -> Path:
        self.calls.append((lower, seed, tuple(commands)))
        volume = self._storage.pool / "volumes" / f".setup-{next(self._numbers)}"
        if seed:
            self._storage.clone(seed, volume)
        else:
            self._storage.create(volume, OWNER)
        (volume / "upper" / "done").write_text("\n".join(commands))
        (volume / "guest" / "run.log").write_text("of the set-up")
        (volume / "work" / "work").mkdir(mode=0)
        return volume


def left_over(storage: Storage) -> list[str]:
    """Everything on the pool that is no finished build."""
    shelves = [storage.pool / "templates", storage.pool / "volumes"]
    return [e.name for shelf in shelves for e in shelf.iterdir() if e.name.startswith(".")]
