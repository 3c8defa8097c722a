"""This process on this host: where it keeps sockets and locks, and how others see that it lives."""

import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

from paddock.adapters.providers.docker.config import RUN_ROOT, DockerConfig
from paddock.adapters.providers.docker.names import Names
from paddock.adapters.providers.docker.records import Maker
from paddock.adapters.providers.host.owner import Locks, Owner, coming_or_going
from paddock.domain.errors import Unavailable
from paddock.domain.ids import is_ulid

_GIVEN_UP_S = 900.0
"""After this, a half-made thing of a process on another host is nobody's any more."""


class Place:
    """Directories of one installation on this host, and this process's claim to be alive."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.owner = Owner(run / "owners")
        self.locks = Locks(run / "locks")
        self.maker = Maker(_host(), str(run), self.owner.id)

    @classmethod
    def open(cls, config: DockerConfig, names: Names) -> "Place":
        root = _run_root(config)
        run = root / f"docker-{names.tag}"
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o711)
            _check_ours(root)
            with coming_or_going(run):
                run.mkdir(exist_ok=True, mode=0o711)
                _check_ours(run)
                for private in ("owners", "locks", "guests"):
                    (run / private).mkdir(exist_ok=True, mode=0o700)
                return cls(run)
        except OSError as error:
            raise Unavailable(
                f"the directory {run} cannot be used: {error}",
                remediation="set docker.run_root to a directory that this user can write to",
            ) from error

    def shares(self, maker: Maker) -> bool:
        """Whether the maker keeps its sockets and locks where this process does."""
        return (maker.host, maker.run) == (self.maker.host, self.maker.run)

    def is_alive(self, maker: Maker, created_at: float) -> bool:
        if not self.shares(maker):
            return time.time() - created_at < _GIVEN_UP_S
        return is_ulid(maker.id) and self.owner.is_alive(maker.id)

    def socket(self, container: str) -> Path:
        """Where a joined guest listens; it outlives this process."""
        return self.run / "guests" / f"{container[:32]}.sock"

    def tunnel_socket(self, container: str) -> Path:
        """Where this process listens for a packed guest; it ends with this process."""
        return self.run / "guests" / f"{self.owner.id}-{container[:12]}.sock"

    def forget_dead(self) -> None:
        """Processes that ended without saying so. None is between making its file and its lock."""
        with coming_or_going(self.run):
            self.owner.forget_dead()

    def close(self) -> None:
        """With the last process that uses it, and no guest listening in it, the directory goes."""
        with coming_or_going(self.run):
            self.owner.forget_dead()
            self.owner.close()
            if not any(any((self.run / part).iterdir()) for part in ("owners", "guests")):
                shutil.rmtree(self.run, ignore_errors=True)


def _check_ours(directory: Path) -> None:
    if directory.stat().st_uid != os.geteuid():
        raise PermissionError(f"{directory} belongs to another user")


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
