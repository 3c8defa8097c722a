"""Which process is at work on what: locks that the kernel lets go of when a process dies."""

import asyncio
import contextlib
import fcntl
import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from paddock.domain.ids import new_ulid


@contextlib.contextmanager
def coming_or_going(run: Path) -> Iterator[None]:
    """One process at a time enters or leaves an installation's volatile directory."""
    run.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    descriptor = os.open(run.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class Owner:
    """This process, as others see it: alive for as long as its file is locked.

    The launcher holds the same lock, so that nobody takes this process for dead while a runtime
    that it started is still under way.
    """

    def __init__(self, directory: Path) -> None:
        self.id = new_ulid()
        self._directory = directory
        self._path = directory / self.id
        self.fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def is_alive(self, owner: str) -> bool:
        return owner == self.id or not _lockable(self._directory / owner)

    def forget_dead(self) -> None:
        for path in self._directory.iterdir():
            if path.name != self.id and _lockable(path):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self.fd)


def _lockable(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


class Turns:
    """One at a time for each key, within this process."""

    def __init__(self) -> None:
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._interested: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def take(self, key: str) -> AsyncIterator[None]:
        self._interested[key] += 1
        try:
            async with self._locks[key]:
                yield
        finally:
            self._interested[key] -= 1
            if not self._interested[key]:
                del self._interested[key], self._locks[key]


class Locks:
    """One lock per sandbox, held across processes. It is a file only while somebody holds it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._turns = Turns()

    @contextlib.asynccontextmanager
    async def hold(self, ref: str) -> AsyncIterator[None]:
        """Whether there is such a sandbox is not looked at, and nothing is left if there is not."""
        path = self._directory / ref
        async with self._turns.take(ref):
            descriptor = await _lock(path)
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
                os.close(descriptor)

    def sweep(self) -> None:
        """Remove the locks of processes that were killed while they held them."""
        for path in self._directory.iterdir():
            if (descriptor := _try_lock(path)) is not None:
                path.unlink()
                os.close(descriptor)


async def _lock(path: Path) -> int:
    delay = 0.001
    while (descriptor := _try_lock(path)) is None:
        await asyncio.sleep(delay)
        delay = min(delay * 2, 0.05)
    return descriptor


def _try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock; None while another holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last holder may have removed the file after it was opened here.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    os.close(descriptor)
    return None
