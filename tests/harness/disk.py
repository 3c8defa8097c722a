"""The btrfs disk that tests share. Its templates are built once per machine.

The disk is an image in the user's cache directory. A process that needs it mounts it and holds a
shared lock; the last one to release it unmounts the disk. A nested test session therefore never
unmounts the disk under the outer one.

    library/     an installation that only builds templates
    sealed/      each build of the library as a subvolume, to be copied in milliseconds
    sessions/    one directory per test session; removed with it

`furnish()` puts finished templates into a data directory on the disk. An installation there needs
neither an image of its own nor a build. This file is also the program that builds a template.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from paddock.adapters.providers.local.storage import ioctls
from paddock.adapters.providers.local.storage.btrfs import is_subvolume
from paddock.adapters.providers.local.storage.quotas import Quotas
from tests.root import require_root

REPOSITORY = Path(__file__).parents[2]
_HOME = Path(f"~{os.environ.get('SUDO_USER', '')}").expanduser()
_CACHES = Path(os.environ.get("XDG_CACHE_HOME") or _HOME / ".cache")
CACHE = Path(os.environ.get("PADDOCK_TEST_CACHE") or _CACHES / "paddock-tests")
"""What is built once per machine. `scripts/setup.sh` uses the same directory, as the user."""
TEMPLATES = CACHE / "templates"
"""Built templates as archives, for installations that are not on the disk."""
AGENTS = CACHE / "agents"
"""Agents that are installed here are not downloaded again."""

_IMAGE = CACHE / "disk.img"
_USERS = CACHE / "disk.lock"
"""Each process that uses the disk holds this lock, shared."""
_SIZE_MIB = 65536
_SHARE_OF_FREE_DISK = 0.8
_SESSION = "PADDOCK_TEST_SESSION"

# Not below the home directory: the root of a sandbox must be able to cross every parent.
DISK = Path("/run/paddock-tests") / hashlib.sha256(str(CACHE).encode()).hexdigest()[:8]
LIBRARY, _SEALED, _SESSIONS = DISK / "library", DISK / "sealed", DISK / "sessions"

_held: dict[int, IO[str]] = {}
"""The lock that this process holds, by its pid: a forked child holds none of its own."""


def session_directory() -> Path:
    """The directory of this test session, the same in all its workers. It may not exist yet."""
    return _SESSIONS / os.environ.setdefault(_SESSION, str(os.getpid()))


def begin_session() -> None:
    """Give this session a directory of its own, also inside another session."""
    os.environ[_SESSION] = str(os.getpid())


def new_directory() -> Path:
    """A directory of this session, for an installation of its own. `remove()` it afterwards."""
    hold()
    places = session_directory() / "places"
    places.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=places))
    made.chmod(0o711)
    return made


def hold() -> None:
    """Mount the disk if needed, and keep it mounted until `release()` or the process ends.

    Without root the test that asks is reported as not run.
    """
    if os.getpid() in _held:
        return
    require_root()
    with _deciding():
        lock = _USERS.open("a")
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not os.path.ismount(DISK):
            _mount()
    _held[os.getpid()] = lock


def release() -> None:
    """Release the disk, and unmount it if no other process holds it."""
    lock = _held.pop(os.getpid(), None)
    if lock is not None:
        lock.close()
    if not os.path.ismount(DISK):
        return
    with _deciding(), _USERS.open("a") as users, contextlib.suppress(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.ismount(DISK):  # another process may have unmounted it since the look above
            _sweep()
            subprocess.run(["umount", str(DISK)], check=False)


def is_used_by_others() -> bool:
    """Whether another test session is running on this machine."""
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        with _USERS.open("a") as users:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # root's file: only root's sessions use the disk
        return True
    return False


@contextlib.contextmanager
def _deciding() -> Iterator[None]:
    """Let one process at a time mount or unmount."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "mount.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _mount() -> None:
    DISK.mkdir(parents=True, exist_ok=True)
    DISK.parent.chmod(0o711)
    if not _IMAGE.exists():
        _make_image()
    subprocess.run(["mount", "-o", "noatime,loop", str(_IMAGE), str(DISK)], check=True)
    DISK.chmod(0o711)
    Quotas(DISK, ours=True).enable()
    for directory in (LIBRARY, _SEALED, _SESSIONS):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o711)
    _sweep()


def _make_image() -> None:
    free = os.statvfs(CACHE)
    free_mib = int(free.f_bavail * free.f_frsize * _SHARE_OF_FREE_DISK) >> 20
    draft = _IMAGE.with_suffix(".draft")
    with draft.open("wb") as content:
        content.truncate(min(_SIZE_MIB, free_mib) << 20)
    subprocess.run(
        ["mkfs.btrfs", "--quiet", "--force", str(draft)], check=True, stderr=subprocess.DEVNULL
    )
    draft.rename(_IMAGE)


def _sweep() -> None:
    """Remove what crashed sessions left. No other process holds the disk."""
    for left in _SESSIONS.iterdir():
        remove(left)


def remove(directory: Path) -> None:
    """Delete a directory of the disk with the subvolumes in it. Absent is success."""
    for volume in _subvolumes(directory):
        with contextlib.suppress(OSError), ioctls.opened(volume.parent) as parent:
            ioctls.destroy_subvolume(parent, volume.name)
    shutil.rmtree(directory, ignore_errors=True)


def _subvolumes(directory: Path) -> Iterator[Path]:
    """Yield the subvolumes in the pools of installations, the innermost first."""
    for shelf in directory.glob("**/pool/*/"):
        for entry in shelf.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                yield from (part for part in entry.iterdir() if _is_volume(part))
                if _is_volume(entry):
                    yield entry


def _is_volume(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and is_subvolume(path)


def furnish(data_dir: Path, *templates: str) -> None:
    """Put built-in templates into a data directory on the disk, and build them if needed."""
    hold()
    for name in templates:
        ensure_built(name)
        _copy(name, data_dir)


def _pin(name: str) -> Path:
    """The file that names a sealed build. A clone with another recipe has its own."""
    # Imported late: every test session imports this module, and few use templates.
    from paddock.adapters.providers.local.templates import sources
    from paddock.adapters.providers.local.templates.recipes import BUILT_IN

    recipe = BUILT_IN[name].digest()[:16]
    return _SEALED / f"{name}-{sources.REVISION}-{recipe}.pin"


def _is_sealed(name: str) -> bool:
    return _pin(name).exists()


def ensure_built(name: str) -> None:
    """Build a template unless the library has it. Several callers wait for the same build."""
    hold()
    if _is_sealed(name):
        return
    # In a separate process, because the caller's event loop is running.
    command = [sys.executable, "-m", "tests.harness.disk", name]
    subprocess.run(command, cwd=REPOSITORY, check=True)


def _copy(name: str, data_dir: Path) -> None:
    recipe, pin, *digests = _pin(name).read_text().splitlines()
    shelf = data_dir / "pool" / "templates"
    shelf.mkdir(parents=True, exist_ok=True)
    for digest in digests:
        if (shelf / digest).exists():
            continue
        _snapshot(_SEALED / digest, shelf / digest)
        if (_SEALED / f"{digest}.seed").exists():
            _snapshot(_SEALED / f"{digest}.seed", shelf / digest / "seed")
    pins = data_dir / "templates" / ".pins"
    pins.mkdir(parents=True, exist_ok=True)
    (pins / recipe).write_text(f"{pin}\n")


def _snapshot(source: Path, target: Path) -> None:
    with ioctls.opened(source) as volume, ioctls.opened(target.parent) as parent:
        ioctls.snapshot(volume, parent, target.name)


async def build(name: str) -> None:
    """Build a template in the library and seal it. One process at a time."""
    # Imported late: every test session imports this module, and few build anything.
    from paddock.adapters.providers.local.config import LocalConfig
    from paddock.adapters.providers.local.provider import LocalProvider

    hold()
    with (DISK / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_sealed(name):
            return
        config = LocalConfig(data_dir=LIBRARY, template_cache=TEMPLATES)
        provider = await LocalProvider.open(config)
        try:
            await provider.prepare(name)
            recipe = provider.templates.recipe(name)
            made = provider.templates.built(recipe)
            assert made is not None
            shelf = LIBRARY / "pool" / "templates"
            digests = list(dict.fromkeys((made.root, made.digest)))
            for digest in digests:
                _seal(shelf / digest)
        finally:
            await provider.aclose()
        pin = (LIBRARY / "templates" / ".pins" / recipe.digest()).read_text().strip()
        draft = _pin(name).with_suffix(".draft")
        draft.write_text("\n".join((recipe.digest(), pin, *digests)))
        draft.rename(_pin(name))


def _seal(build_: Path) -> None:
    """Copy a build into a subvolume. Its blocks are shared, so this takes a second."""
    target = _SEALED / build_.name
    if target.exists():
        return
    with ioctls.opened(_SEALED) as parent:
        ioctls.create_subvolume(parent, target.name)
    seed = build_ / "seed"
    parts = [str(part) for part in build_.iterdir() if part != seed]
    subprocess.run(["cp", "-a", "--reflink=always", *parts, str(target)], check=True)
    if seed.exists():
        _snapshot(seed, _SEALED / f"{build_.name}.seed")


if __name__ == "__main__":
    asyncio.run(build(sys.argv[1]))
