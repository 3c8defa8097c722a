"""Real engines for tests: the Docker that runs, or one of our own for as long as they take.

One of our own keeps everything in one directory; Docker leaves the host's firewall alone then. This
file is also the program that watches over it: it ends the engine and removes the directory when it
is told to, and when the test session is gone without having told it.
"""

import contextlib
import http.client
import json
import os
import resource
import shlex
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
_TABLES = ("filter", "nat")
_POOL = "base=10.214.0.0/16,size=24"


class CannotStart(Exception):
    """Why there is no engine for the tests."""


class OwnEngine:
    """An engine with a directory of its own. Start, stop and kill it as often as needed."""

    program = "dockerd"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        (self.directory / "docker.pid").unlink(missing_ok=True)
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
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

    def _command(self) -> list[str]:
        config = self.directory / "daemon.json"
        config.write_text(json.dumps({"runtimes": _runtimes()}))
        return [
            *("dockerd", "--host", self.host, "--iptables=false", "--ip6tables=false"),
            *("--data-root", str(self.directory / "data")),
            *("--exec-root", str(self.directory / "exec")),
            *("--pidfile", str(self.directory / "docker.pid")),
            *("--config-file", str(config), "--bridge=none"),
            *("--default-address-pool", _POOL, "--log-level=warn"),
        ]

    def stop(self) -> None:
        """As a service manager does: its containers end with it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a crash does: its containers go on until it comes back."""
        helper = _number(self.directory / "exec/containerd/containerd.pid")
        self._end(signal.SIGKILL)
        # It dies with the engine; while it is still listed, a new engine would not start another.
        until = time.monotonic() + 30
        while helper and Path(f"/proc/{helper}").exists() and time.monotonic() < until:
            time.sleep(0.05)

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

    def _helpers(self) -> list[int]:
        """What it started and left: monitors of programs that have ended, shims of containers that
        failed. Each names a path of ours on its command line."""
        sign = f"{self.directory}/".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if sign in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found

    def remove(self) -> None:
        """Everything of it. It has been stopped before."""
        for pid in self._helpers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            point = line.split()[1]
            if point.startswith(f"{self.directory}/"):
                subprocess.run(["umount", "--lazy", point], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)


def _runtimes() -> dict[str, Any]:
    """gVisor beside the default, where one is installed that is recent enough."""
    path = shutil.which("runsc")
    if path is None:
        return {}
    said = subprocess.run([path, "flags"], capture_output=True, text=True, check=False)
    if "systrap" not in said.stdout + said.stderr:
        return {}
    return {"runsc": {"path": path, "runtimeArgs": ["--platform=systrap", "--network=none"]}}


class OwnPodman(OwnEngine):
    """Podman's service, which speaks Docker's API."""

    program = "podman"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._had_rules = any(_netavark_rules(table) for table in _TABLES)

    def _command(self) -> list[str]:
        config = self.directory / "containers.conf"
        files = min(65_536, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        config.write_text(
            # A root without CAP_SYS_RESOURCE cannot have the limits that Podman asks for.
            f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc=4096:4096"]\n'
            '[network]\nnetwork_backend = "netavark"\n'
        )
        return [
            *("env", f"CONTAINERS_CONF={config}", "podman", "--runtime", "runc"),
            *("--root", str(self.directory / "data"), "--runroot", str(self.directory / "run")),
            *("--tmpdir", str(self.directory / "tmp"), "--cgroup-manager", "cgroupfs"),
            *("--network-config-dir", str(self.directory / "networks")),
            *("--events-backend", "none", "system", "service", "--time", "0", self.host),
        ]

    def remove(self) -> None:
        super().remove()
        if self._had_rules:
            return
        for table in _TABLES:
            rules = [shlex.split(rule) for rule in _netavark_rules(table)]
            for _, *rest in (rule for rule in rules if rule[0] == "-A"):
                _iptables(table, "-D", *rest)
            for chain in (rule[1] for rule in rules if rule[0] == "-N"):
                _iptables(table, "-F", chain)
                _iptables(table, "-X", chain)


def _netavark_rules(table: str) -> list[str]:
    """What Podman adds to the host's firewall and leaves there."""
    return [line for line in _iptables(table, "-S").splitlines() if "NETAVARK" in line]


def _iptables(table: str, *arguments: str) -> str:
    command = ["iptables", "-w", "-t", table, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


KINDS = {"docker": OwnEngine, "podman": OwnPodman}


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


def start_docker() -> dict[str, Any]:
    """The Docker that the operator names or that runs; one of our own where none does."""
    if host := os.environ.get("PADDOCK_TEST_DOCKER_HOST"):
        return {"host": host, "watcher": None}
    if answers(_USUAL):
        return {"host": f"unix://{_USUAL}", "watcher": None}
    return _start_own("docker")


def start_podman() -> dict[str, Any]:
    """Always one of our own."""
    if shutil.which("podman") is not None and not Path("/usr/lib/podman/netavark").exists():
        raise CannotStart("netavark, which gives its containers a network, is not installed")
    return _start_own("podman")


def _start_own(kind: str) -> dict[str, Any]:
    """The value to share between parallel workers: where it is, and who watches over it."""
    if os.geteuid() != 0:
        raise CannotStart("none runs, and only root could start one")
    if shutil.which(KINDS[kind].program) is None:
        raise CannotStart(f"none runs, and {KINDS[kind].program} is not installed")
    directory = new_directory()
    parallel = "PYTEST_XDIST_WORKER" in os.environ
    session = os.getppid() if parallel else os.getpid()
    watcher = subprocess.Popen(
        [sys.executable, "-I", __file__, kind, str(directory), str(session)],
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


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        return " / ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
    return "it left no log"


def watch_over(kind: str, directory: Path, session: int) -> None:
    """The program: keep an engine until told to end, or until nobody is left to tell."""
    ending = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal ending
        ending = True

    signal.signal(signal.SIGTERM, end)
    engine = KINDS[kind](directory)
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
    watch_over(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
