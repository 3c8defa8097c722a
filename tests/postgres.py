"""A real PostgreSQL for tests, from Debian's package, for as long as they take.

It listens on a socket in a directory of its own and runs as an unprivileged user. This file is also
the program that watches over it: it ends the server and removes the directory when it is told to,
and when the test session is gone without having told it.
"""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

PREFIX = "paddock-test-postgres-"
_USER = "postgres"
_START_S = 60.0


class CannotStart(Exception):
    """Why there is no server for the tests."""


def binaries() -> Path:
    """Of the newest version that is installed; Debian keeps them out of PATH."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    if not found:
        raise CannotStart("postgresql is not installed")
    return max(found, key=lambda path: int(path.parent.name.split(".")[0]))


class OwnServer:
    """A server with a directory of its own. Start, stop and kill it as often as needed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._bin = binaries()
        self._process: subprocess.Popen[bytes] | None = None
        # PostgreSQL refuses to be root's.
        self._user = pwd.getpwnam(_USER) if os.geteuid() == 0 else None

    @property
    def url(self) -> str:
        """Of the server; `{}` is the database's place."""
        return f"postgresql://{_USER}@/{{}}?host={self.directory}"

    def start(self) -> None:
        data = self.directory / "data"
        if not data.exists():
            self._make(data)
        command = [
            *(str(self._bin / "postgres"), "-D", str(data), "-k", str(self.directory)),
            # Without fsync a crash of the machine would lose data, but not one of the server.
            *("-c", "listen_addresses=", "-c", "fsync=off", "-c", "jit=off"),
            *("-c", "max_connections=200", "-c", "shared_buffers=32MB"),
        ]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_user())
        until = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise CannotStart(_tail(self.directory / "log"))
            time.sleep(0.05)

    def _make(self, data: Path) -> None:
        command = [
            *(str(self._bin / "initdb"), "-D", str(data), "-U", _USER, "-A", "trust"),
            *("-E", "UTF8", "--locale=C.UTF-8", "--no-sync"),
        ]
        if self._user:
            os.chown(self.directory, self._user.pw_uid, self._user.pw_gid)
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, **self._as_user()
        )
        if done.returncode:
            raise CannotStart(done.stderr.strip().splitlines()[-1])

    def _as_user(self) -> dict[str, Any]:
        where = {"cwd": self.directory, "stdin": subprocess.DEVNULL, "start_new_session": True}
        if self._user is None:
            return where
        return where | {
            "user": self._user.pw_uid,
            "group": self._user.pw_gid,
            "extra_groups": [],
        }

    def _answers(self) -> bool:
        ask = [str(self._bin / "pg_isready"), "-q", "-h", str(self.directory), "-U", _USER]
        return subprocess.run(ask, check=False).returncode == 0

    def stop(self) -> None:
        """At once, with everybody's connections."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        self._end(signal.SIGQUIT)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def remove(self) -> None:
        """Everything of it. It has been stopped before."""
        shutil.rmtree(self.directory, ignore_errors=True)


def new_directory() -> Path:
    """Near the root: the path of a socket has room for some hundred characters only."""
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir="/var/tmp"))


def start_postgres() -> dict[str, Any]:
    """The value to share between parallel workers: where it is, and who watches over it."""
    binaries()
    directory = new_directory()
    parallel = "PYTEST_XDIST_WORKER" in os.environ
    session = os.getppid() if parallel else os.getpid()
    watcher = subprocess.Popen(
        [sys.executable, "-I", __file__, str(directory), str(session)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert watcher.stdout is not None
    with watcher.stdout:
        said = json.loads(watcher.stdout.readline() or b'{"problem": "its watcher died"}')
    if "problem" in said:
        watcher.wait()
        raise CannotStart(said["problem"])
    watcher.returncode = 0  # it is ended by number, perhaps by another worker
    return {"url": said["url"], "watcher": watcher.pid}


def stop_postgres(value: dict[str, Any]) -> None:
    """Return when the server and its directory are gone."""
    pid = value["watcher"]
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + 60
    while _is_alive(pid) and time.monotonic() < until:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        return " / ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
    return "it left no log"


def watch_over(directory: Path, session: int) -> None:
    """The program: keep a server until told to end, or until nobody is left to tell."""
    ending = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal ending
        ending = True

    signal.signal(signal.SIGTERM, end)
    server = OwnServer(directory)
    try:
        server.start()
        print(json.dumps({"url": server.url}), flush=True)
        while not ending and _is_alive(session):
            time.sleep(0.1)
    except CannotStart as error:
        print(json.dumps({"problem": str(error)}), flush=True)
    finally:
        server.stop()
        server.remove()


if __name__ == "__main__":
    watch_over(Path(sys.argv[1]), int(sys.argv[2]))
