"""From what the file system says to what an operator can act on."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paddock.domain.errors import (
    Broken,
    Conflict,
    LimitExceeded,
    NotFound,
    PaddockError,
    QuotaExceeded,
)

_MEANINGS: dict[int, tuple[type[PaddockError], str, str]] = {
    errno.ENOSPC: (
        QuotaExceeded,
        "the disk that holds {path} is full",
        "delete sandboxes or snapshots that are no longer needed, or enlarge the pool",
    ),
    errno.EDQUOT: (
        LimitExceeded,
        "the disk quota of {path} is used up",
        "delete files inside, or give the sandbox a larger disk_mib",
    ),
    errno.EEXIST: (Conflict, "{path} exists already", "delete it first or use another name"),
    errno.ENOTEMPTY: (Conflict, "{path} exists already", "delete it first or use another name"),
    errno.EBUSY: (
        Conflict,
        "{path} is in use: something is mounted on it",
        "stop the sandbox that uses it first",
    ),
    errno.EROFS: (
        Broken,
        "the file system that holds {path} has become read-only",
        "the kernel does so after a disk error or when the disk below the pool is full: read "
        "`dmesg`, free space, then unmount the pool and start again",
    ),
}


class NotHere(Exception):
    """A driver cannot work on this host; the text says why."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns an OSError inside into the domain's error about the path."""
    try:
        yield
    except OSError as error:
        raise explain(error, path) from error


def explain(error: OSError, path: Path) -> PaddockError:
    if error.errno == errno.ENOENT:
        return NotFound(f"{error.filename or path} does not exist")
    if error.errno in _MEANINGS:
        kind, message, remediation = _MEANINGS[error.errno]
        return kind(message.format(path=path), remediation=remediation)
    return Broken(
        f"the file system refused work on {path}: {error.strerror or error}",
        remediation="read `dmesg` for the cause, and run `paddock doctor`",
    )
