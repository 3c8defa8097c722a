"""The file of an SQLite database: made for its owner alone, and who has it open."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paddock.adapters.store.config import StoreConfig
from paddock.domain.errors import InvalidRequest, Unavailable


class Owned:
    """Our claim on the file, alone or with others, until it is closed or the process is gone."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def own(path: Path, config: StoreConfig) -> Owned:
    """Unavailable when somebody has it alone, or when it is wanted alone and somebody has it.

    The claim is on a file beside it, which stays: closing any handle of the database itself would
    drop SQLite's own locks on it.
    """
    beside = path.with_name(f"{path.name}-owner")
    handle = os.open(beside, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        kind = fcntl.LOCK_EX if config.exclusive else fcntl.LOCK_SH
        if not _locked(handle, kind, config.wait_s):
            raise Unavailable(
                f"database {path}: another process has it open",
                remediation="if it is `paddock up`, end that one or use another data directory",
            )
    except BaseException:
        os.close(handle)
        raise
    return Owned(handle)


@contextmanager
def opening(path: Path, wait_s: float) -> Iterator[None]:
    """One process at a time makes the file and its tables. The claim is on the directory."""
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not _locked(handle, fcntl.LOCK_EX, wait_s):
            raise Unavailable(
                f"database {path}: another process has been opening it for too long",
                remediation="try again when it has ended",
            )
        yield
    finally:
        os.close(handle)


def create(path: Path) -> None:
    """Ours alone from the first moment; SQLite gives its companions the same mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
            raise InvalidRequest(
                f"database {path}: this is not a file that can be read and written",
                remediation="let this user do both, or name another file",
            ) from None


def identity(path: Path) -> tuple[int, int] | None:
    """Which file the name stands for now."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _locked(handle: int, kind: int, wait_s: float) -> bool:
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        else:
            return True
