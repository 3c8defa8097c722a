"""A real PostgreSQL for tests, from Debian's package, for as long as they take.

It listens on a socket in a directory of its own and runs as an unprivileged user. This file is also
the program that watches over it.
"""

import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import daemons
from tests.daemons import CannotStart, Daemon, start_watched, watch_over

_USER = "postgres"


def binaries() -> Path:
    """Of the newest version that is installed; Debian keeps them out of PATH."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    if not found:
        raise CannotStart("postgresql is not installed")
    return max(found, key=lambda path: int(path.parent.name.split(".")[0]))


class OwnServer(Daemon):
    """A server with a directory of its own."""

    ends_within_s = 30.0

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._bin = binaries()
        # PostgreSQL refuses to be root's.
        self._user = pwd.getpwnam(_USER) if os.geteuid() == 0 else None

    @property
    def address(self) -> str:
        """Of the server; `{}` is the database's place."""
        return f"postgresql://{_USER}@/{{}}?host={self.directory}"

    def _command(self) -> list[str]:
        data = self.directory / "data"
        if not data.exists():
            self._make(data)
        return [
            *(str(self._bin / "postgres"), "-D", str(data), "-k", str(self.directory)),
            # Without fsync a crash of the machine would lose data, but not one of the server.
            *("-c", "listen_addresses=", "-c", "fsync=off", "-c", "jit=off"),
            *("-c", "max_connections=200", "-c", "shared_buffers=32MB"),
        ]

    def _make(self, data: Path) -> None:
        command = [
            *(str(self._bin / "initdb"), "-D", str(data), "-U", _USER, "-A", "trust"),
            *("-E", "UTF8", "--locale=C.UTF-8", "--no-sync"),
        ]
        if self._user:
            os.chown(self.directory, self._user.pw_uid, self._user.pw_gid)
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd=self.directory,
            **self._account(),
        )
        if done.returncode:
            raise CannotStart(done.stderr.strip().splitlines()[-1])

    def _account(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _answers(self) -> bool:
        ask = [str(self._bin / "pg_isready"), "-q", "-h", str(self.directory), "-U", _USER]
        return subprocess.run(ask, check=False).returncode == 0

    def stop(self) -> None:
        """At once, with everybody's connections."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """As the kernel does when memory is short; its other processes end with it."""
        self._end(signal.SIGQUIT)


def new_directory() -> Path:
    return daemons.new_directory("paddock-test-postgres-")


def start_postgres() -> dict[str, Any]:
    """One that parallel workers share."""
    binaries()
    return start_watched("tests.postgres", str(new_directory()))


if __name__ == "__main__":
    watch_over(OwnServer(Path(sys.argv[1])), int(sys.argv[2]))
