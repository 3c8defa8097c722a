"""This process on this host: where it keeps sockets and locks, and how others see that it lives."""

import asyncio
import os
import socket
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from paddock.adapters.providers.docker.config import RUN_ROOT, DockerConfig
from paddock.adapters.providers.docker.names import Names
from paddock.adapters.providers.docker.records import Maker
from paddock.adapters.providers.local.layout import Layout
from paddock.adapters.providers.local.owner import Locks, Owner
from paddock.domain.errors import Unavailable
from paddock.domain.ids import is_ulid

_GIVEN_UP_S = 900.0
"""After this, a half-made thing of a process on another host is nobody's any more."""


class Place:
    """Directories of one installation on this host, and this process's claim to be alive."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.owner = Owner(layout)
        self.locks = Locks(layout)
        self.maker = Maker(_host(), str(layout.run), self.owner.id)

    @classmethod
    def open(cls, config: DockerConfig, names: Names) -> "Place":
        root = _run_root(config)
        run = root / f"docker-{names.tag}"
        layout = Layout(data=run, run=run)
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o711)
            run.mkdir(exist_ok=True, mode=0o711)
            for directory in (root, run):
                if directory.stat().st_uid != os.geteuid():
                    raise PermissionError(f"{directory} belongs to another user")
            for private in (layout.owners, run / "locks", run / "guests"):
                private.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise Unavailable(
                f"the directory {run} cannot be used: {error}",
                remediation="set docker.run_root to a directory that this user can write to",
            ) from error
        return cls(layout)

    def shares(self, maker: Maker) -> bool:
        """Whether the maker keeps its sockets and locks where this process does."""
        return (maker.host, maker.run) == (self.maker.host, self.maker.run)

    def is_alive(self, maker: Maker, created_at: float) -> bool:
        if not self.shares(maker):
            return time.time() - created_at < _GIVEN_UP_S
        return is_ulid(maker.id) and self.owner.is_alive(maker.id)

    def socket(self, container: str) -> Path:
        """Where a joined guest listens; it outlives this process."""
        return self.layout.socket(container[:32])

    def tunnel_socket(self, container: str) -> Path:
        """Where this process listens for a packed guest; it ends with this process."""
        return self.layout.socket(f"{self.owner.id}-{container[:12]}")

    def close(self) -> None:
        self.owner.close()


def _run_root(config: DockerConfig) -> Path:
    if os.geteuid() == 0 or config.run_root != RUN_ROOT:
        return config.run_root
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "paddock"
    return Path(tempfile.gettempdir()) / f"paddock-{os.geteuid()}"


def _host() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip() or socket.gethostname()
    except OSError:
        return socket.gethostname()


class Turns:
    """One at a time for each key, within this process; between processes the engine decides."""

    def __init__(self) -> None:
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._interested: Counter[str] = Counter()

    @asynccontextmanager
    async def take(self, key: str) -> AsyncIterator[None]:
        self._interested[key] += 1
        try:
            async with self._locks[key]:
                yield
        finally:
            self._interested[key] -= 1
            if not self._interested[key]:
                del self._interested[key], self._locks[key]
