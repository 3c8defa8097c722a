"""Real daemons for tests: each in a directory of its own, for as long as the tests take.

A program of its own watches over one that parallel workers share: it ends the daemon and removes
the directory when it is told to, and when the test session is gone without having told it.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

REPOSITORY = Path(__file__).parents[1]
_START_S = 60.0


class CannotStart(Exception):
    """Why there is no such daemon for the tests."""


class Daemon:
    """A daemon with a directory of its own. Start, stop and kill it as often as needed."""

    ends_within_s = 60.0

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it is reached."""
        raise NotImplementedError

    def _command(self) -> list[str]:
        """What starts it; what it needs is made ready by the way."""
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def _account(self) -> dict[str, Any]:
        """As whom it runs, in the words of Popen."""
        return {}

    def start(self) -> None:
        command = self._command()
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._account(),
            )
        until = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise CannotStart(_tail(self.directory / "log"))
            time.sleep(0.05)

    def stop(self) -> None:
        """As a service manager does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a crash does."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(self.ends_within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def clear(self) -> None:
        """Before it is stopped for good: what would keep it from ending at once goes."""

    def remove(self) -> None:
        """Everything of it. It has been stopped before."""
        shutil.rmtree(self.directory, ignore_errors=True)


def new_directory(prefix: str) -> Path:
    """On the disk, where every kind of storage works, and near the root: the path of a socket has
    room for some hundred characters only."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir="/var/tmp"))


def start_watched(module: str, *arguments: str) -> dict[str, Any]:
    """The value to share between parallel workers: where it is, and who watches over it.

    The module is the program: it calls `watch_over` with the arguments and the session's number.
    """
    parallel = "PYTEST_XDIST_WORKER" in os.environ
    session = os.getppid() if parallel else os.getpid()
    watcher = subprocess.Popen(
        [sys.executable, "-m", module, *arguments, str(session)],
        cwd=REPOSITORY,
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
    return {"address": said["address"], "watcher": watcher.pid}


def stop_watched(value: dict[str, Any]) -> None:
    """Return when the daemon and its directory are gone; one that is not ours goes on."""
    pid = value["watcher"]
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + 90
    while _is_alive(pid) and time.monotonic() < until:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)


def watch_over(daemon: Daemon, session: int) -> None:
    """Keep it until told to end, or until nobody is left to tell."""
    ending = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal ending
        ending = True

    signal.signal(signal.SIGTERM, end)
    try:
        daemon.start()
        print(json.dumps({"address": daemon.address}), flush=True)
        while not ending and _is_alive(session):
            time.sleep(0.1)
        daemon.clear()
    except CannotStart as error:
        print(json.dumps({"problem": str(error)}), flush=True)
    finally:
        daemon.stop()
        daemon.remove()


def _is_alive(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        return " / ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
    return "it left no log"
