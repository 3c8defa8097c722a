"""User namespaces with an id range of their own, made without a fork of the launcher."""

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paddock.adapters.providers.host import syscalls

_KEPT_LIMITS = {"max_inotify_instances": 1024, "max_inotify_watches": 524_288}
"""For each user of a sandbox. All others are of namespaces and of fanotify, which none may make."""


@dataclass(frozen=True, slots=True)
class Ids:
    """The ids of one sandbox: those from 0 inside are `count` from `first` on the host.

    Its files are stored with `stored` in the place of `first`, so that copies of a disk and shared
    volumes are of use to sandboxes with other ranges.
    """

    first: int
    stored: int
    count: int
    namespace: str
    """The file at which a runtime finds the user namespace."""


@dataclass(frozen=True, slots=True)
class Mappings:
    """Descriptors of user namespaces."""

    sandbox: int
    """In which the sandbox lives: from 0 inside to `first`. It suits template layers as well."""
    disk: int
    """From what is stored to `first`. The host's root stays itself: it makes an overlay's files."""


@contextlib.contextmanager
def opened(ids: Ids) -> Iterator[Mappings]:
    """Both namespaces of a range; they last as long as a mount or a process uses them."""
    with contextlib.ExitStack() as held:
        sandbox = _make(f"0 {ids.first} {ids.count}\n", ids.first)
        held.callback(os.close, sandbox)
        disk = _make(f"0 0 1\n{ids.stored} {ids.first} {ids.count}\n", 0)
        held.callback(os.close, disk)
        yield Mappings(sandbox, disk)


@contextlib.contextmanager
def mapped(first: int, count: int) -> Iterator[int]:
    """A namespace in which the ids from 0 are `count` from `first` on the host."""
    namespace = _make(f"0 {first} {count}\n", first)
    try:
        yield namespace
    finally:
        os.close(namespace)


def _make(mapping: str, owner: int) -> int:
    """The kernel counts what is used in a user namespace for its owner too, outside. An owner of
    each sandbox's own keeps it from using up what root, and so every other sandbox, may have."""
    with syscalls.waiting_in_user_namespace(owner) as child:
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{kind}").write_text(mapping)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def limits() -> Iterator[int]:
    """The directory of a user namespace's limits, in a /proc that can be written to.

    The kernel shows those of whoever looks into it: of another namespace once that was entered.
    """
    directory = os.open("/proc/sys/user", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        os.close(directory)


def set_limits(directory: int) -> None:
    """Bound what the kernel counts by user, in the user namespace of the calling process.

    Where /proc/sys is read-only, as in most containers, the host's own bounds for an owner hold.
    """
    for name in os.listdir(directory):
        try:
            limit = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
        except OSError as error:
            if error.errno == errno.EROFS:
                return
            raise
        try:
            os.write(limit, str(_KEPT_LIMITS.get(name, 0)).encode())
        finally:
            os.close(limit)
