"""Copying, measuring and removing directory trees whose contents somebody else chose."""

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from paddock.adapters.providers.local.storage.ioctls import clear_protection
from paddock.adapters.providers.local.storage.mounts import mounts
from paddock.adapters.providers.local.storage.programs import (
    check_stopped,
    leave_to_itself,
    removal,
    run,
)

_REASONS = {os.strerror(code): code for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)}


def copy_tree(source: Path, target: Path, *, how: Sequence[str]) -> None:
    """Everything that root can see of a tree: owners, attributes, devices, hard links, holes."""
    command = ["cp", "--archive", "--no-target-directory", *how, "--", str(source), str(target)]
    # One that outlived us would go on filling what the next process sweeps.
    tied = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
    _run([*tied, *command], target)


def tree_bytes(path: Path) -> int:
    """The blocks of everything below; shared extents count for each file that has them."""
    command = ["du", "--summarize", "--one-file-system", "--block-size=1", "--", str(path)]
    # Its exit status is non-zero when a file vanished meanwhile; the sum is right all the same.
    done = run(command)
    if not done.stdout.strip():
        raise FileNotFoundError(errno.ENOENT, done.stderr.strip(), str(path))
    return int(done.stdout.split()[0])


def remove_tree(path: Path) -> None:
    """The tree goes, however deep it is and whatever bits protect it. Absent is success.

    What is mounted inside is never touched: that is EBUSY. Whoever is told to stop meanwhile leaves
    it to a program of its own; should that end too early, the next sweep finds the rest.
    """
    try:
        empty_out(path)
    except InterruptedError:
        leave_to_itself(removal(path))


def empty_out(path: Path) -> None:
    """As remove_tree(); but EINTR when told to stop, for who removes what is around it then."""
    if os.path.lexists(path) and run(removal(path)).returncode:
        _remove_by_flattening(path)


def move_out(name: str, parent: int, target: Path) -> None:
    """An entry of an open directory, whatever bits protect it, becomes the target."""
    try:
        os.rename(name, target, src_dir_fd=parent)
    except PermissionError:
        _clear(parent)
        _unprotect(name, parent)
        os.rename(name, target, src_dir_fd=parent)


def refuse_mounts(path: Path) -> None:
    """EBUSY when something is mounted on the path or below it."""
    if any(Path(mount.point).is_relative_to(path.resolve()) for mount in mounts()):
        raise OSError(errno.EBUSY, "something is mounted inside", str(path))


def _remove_by_flattening(path: Path) -> None:
    """Each directory found is moved up to the top, so that no path becomes too long to name.

    By descriptors and along no link: whoever still has the tree open may exchange what is in it.
    """
    refuse_mounts(path)
    mark = f".lifted-{os.urandom(4).hex()}"
    names = (f"{mark}-{number}" for number in count(1))
    with _opened(path) as top:
        waiting = _lift(top, top, names)
        while waiting:
            check_stopped()
            name = waiting.pop()
            with _opened(name, top) as directory:
                waiting += _lift(directory, top, names)
            os.rmdir(name, dir_fd=top)
    path.rmdir()


def _lift(directory: int, top: int, names: Iterator[str]) -> list[str]:
    """Its files go and its directories move to the top, where they have these names."""
    _clear(directory)
    lifted = []
    for entry in list(os.scandir(directory)):
        _unprotect(entry.name, directory)
        if entry.is_dir(follow_symlinks=False):
            name = next(names)
            os.rename(entry.name, name, src_dir_fd=directory, dst_dir_fd=top)
            lifted.append(name)
        else:
            os.unlink(entry.name, dir_fd=directory)
    return lifted


@contextmanager
def _opened(path: Path | str, parent: int | None = None) -> Iterator[int]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _unprotect(name: str, parent: int) -> None:
    mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    if not (S_ISDIR(mode) or S_ISREG(mode)):
        return  # opening a device or a pipe could block or have effects
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(name, flags, dir_fd=parent)
    try:
        _clear(file)
    finally:
        os.close(file)


def _clear(file: int) -> None:
    try:
        clear_protection(file)
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EOPNOTSUPP):
            raise


def _run(command: list[str], target: Path) -> None:
    done = run(command)
    if done.returncode == 0:
        return
    for text, code in _REASONS.items():
        if text in done.stderr:
            raise OSError(code, text, str(target))
    last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
    raise OSError(errno.EIO, last[0], str(target))
