"""A real Docker engine for tests: the one that runs, or one of our own for as long as they take.

One of our own keeps everything in one directory and leaves the host's firewall alone. This file is
also the program that watches over it: it ends the engine and removes the directory when it is told
to, and when the test session is gone without having told it.
"""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

PREFIX = "paddock-test-engine-"
_USUAL = "/var/run/docker.sock"
_START_S = 60.0
_POOL = "base=10.214.0.0/16,size=24"


class CannotStart(Exception):
    """Why there is no engine for the tests."""


class OwnEngine:
    """A dockerd with a directory of its own. Start, stop and kill it as often as needed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        (self.directory / "docker.pid").unlink(missing_ok=True)
        (self.directory / "daemon.json").write_text("{}")
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("dockerd", "--host", self.host, "--iptables=false", "--ip6tables=false"),
                    *("--data-root", str(self.directory / "data")),
                    *("--exec-root", str(self.directory / "exec")),
                    *("--pidfile", str(self.directory / "docker.pid")),
                    *("--config-file", str(self.directory / "daemon.json")),
                    *("--bridge=none", "--default-address-pool", _POOL, "--log-level=warn"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + _START_S
        while not answers(str(self.socket)):
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise CannotStart(_tail(self.directory / "log"))
            time.sleep(0.05)

    def stop(self) -> None:
        """As a service manager does: its containers end with it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a crash does: its containers go on until it comes back."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def remove(self) -> None:
        """Everything of it. It has been stopped in an orderly way before."""
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            point = line.split()[1]
            if point.startswith(f"{self.directory}/"):
                subprocess.run(["umount", "--lazy", point], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)


def answers(path: str) -> bool:
    """Whether an engine listens at a unix socket."""
    connection = http.client.HTTPConnection("engine", timeout=5)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as client:
        client.settimeout(5)
        try:
            client.connect(path)
            connection.sock = client
            connection.request("GET", "/_ping")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


def new_directory() -> Path:
    """On the disk: an engine's storage does not work on every kind of file system."""
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir="/var/tmp"))


def start_engine() -> dict[str, Any]:
    """The value to share between parallel workers: where it is, and who watches over it."""
    if host := os.environ.get("PADDOCK_TEST_DOCKER_HOST"):
        return {"host": host, "watcher": None}
    if answers(_USUAL):
        return {"host": f"unix://{_USUAL}", "watcher": None}
    if os.geteuid() != 0:
        raise CannotStart("no engine runs, and only root could start one")
    if shutil.which("dockerd") is None:
        raise CannotStart("no engine runs, and dockerd is not installed")
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
    return {"host": said["host"], "watcher": watcher.pid}


def stop_engine(value: dict[str, Any]) -> None:
    """Return when the engine and its directory are gone."""
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
    """The program: keep an engine until told to end, or until nobody is left to tell."""
    ending = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal ending
        ending = True

    signal.signal(signal.SIGTERM, end)
    engine = OwnEngine(directory)
    try:
        engine.start()
        print(json.dumps({"host": engine.host}), flush=True)
        while not ending and _is_alive(session):
            time.sleep(0.1)
        end_containers(engine.socket)
    except CannotStart as error:
        print(json.dumps({"problem": str(error)}), flush=True)
    finally:
        engine.stop()
        engine.remove()


def end_containers(path: Path) -> None:
    """Remove what tests that were cut off have left, so that the engine can end at once."""
    for container in _call(path, "GET", "/containers/json?all=1"):
        _call(path, "DELETE", f"/containers/{container['Id']}?force=1&v=1")


def _call(path: Path, method: str, target: str) -> Any:
    connection = http.client.HTTPConnection("engine", timeout=30)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as client:
        client.settimeout(30)
        client.connect(str(path))
        connection.sock = client
        connection.request(method, target)
        return json.loads(connection.getresponse().read() or b"null")


if __name__ == "__main__":
    watch_over(Path(sys.argv[1]), int(sys.argv[2]))
