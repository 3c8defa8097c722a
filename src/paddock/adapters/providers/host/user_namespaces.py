"""User namespaces with their own ID ranges, created without forking the launcher."""

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paddock.adapters.providers.host import syscalls

_KEPT_LIMITS = {"max_inotify_instances": 1024, "max_inotify_watches": 524_288}
"""Limits for each user of a sandbox. The others (namespaces, fanotify) are 0."""


@dataclass(frozen=True, slots=True)
class Ids:
    """The IDs of one sandbox: 0 to `count` - 1 inside map to `first` and up on the host.

    On disk its files have owners from `stored` up, so that sandboxes with other ranges can use
    copies of a disk and shared volumes.
    """

    first: int
    stored: int
    count: int
    namespace: str
    """The path at which the runtime finds the user namespace."""


@dataclass(frozen=True, slots=True)
class Mappings:
    """Descriptors of user namespaces."""

    sandbox: int
    """The sandbox's namespace: maps 0 inside to `first`. Template layers use it as well."""
    disk: int
    """Maps `stored` to `first`. Root stays root, because it creates the overlay's files."""


@contextlib.contextmanager
def opened(ids: Ids) -> Iterator[Mappings]:
    """Create both namespaces of a range. They exist as long as a mount or process uses them."""
    with contextlib.ExitStack() as held:
        sandbox = _make(f"0 {ids.first} {ids.count}\n", ids.first)
        held.callback(os.close, sandbox)
        disk = _make(f"0 0 1\n{ids.stored} {ids.first} {ids.count}\n", 0)
        held.callback(os.close, disk)
        yield Mappings(sandbox, disk)


@contextlib.contextmanager
def mapped(first: int, count: int) -> Iterator[int]:
    """Create a namespace in which 0 to `count` - 1 map to `first` and up on the host."""
    namespace = _make(f"0 {first} {count}\n", first)
    try:
        yield namespace
    finally:
        os.close(namespace)


def _make(mapping: str, owner: int) -> int:
    """Create a user namespace and return a descriptor of it.

    The kernel also counts usage in a user namespace against the namespace's owner outside. Each
    sandbox has its own owner, so it cannot exhaust root's limits, which all sandboxes share.
    """
    with syscalls.waiting_in_user_namespace(owner) as child:
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{kind}").write_text(mapping)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def limits() -> Iterator[int]:
    """Open the directory of a user namespace's limits, in a writable /proc.

    The kernel shows the limits of the process that reads: after it enters another namespace, those
    of that namespace.
    """
    directory = os.open("/proc/sys/user", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        os.close(directory)


def set_limits(directory: int) -> None:
    """Limit what the kernel counts per user, in the user namespace of the calling process.

    If /proc/sys is read-only, as in most containers, the host's own limits apply.
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
