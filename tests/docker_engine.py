"""Real engines for tests: the Docker that runs, or one of our own for as long as they take.

One of our own keeps everything in one directory; Docker leaves the host's firewall alone then. This
file is also the program that watches over it.
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
import time
from pathlib import Path
from typing import Any

from tests import daemons
from tests.daemons import CannotStart, Daemon, start_watched, watch_over

_USUAL = "/var/run/docker.sock"
_TABLES = ("filter", "nat")
_POOL = "base=10.214.0.0/16,size=24"


class OwnEngine(Daemon):
    """An engine with a directory of its own."""

    program = "dockerd"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.socket = directory / "docker.sock"

    @property
    def address(self) -> str:
        return f"unix://{self.socket}"

    def _answers(self) -> bool:
        return answers(str(self.socket))

    def _command(self) -> list[str]:
        (self.directory / "docker.pid").unlink(missing_ok=True)
        config = self.directory / "daemon.json"
        config.write_text(json.dumps({"runtimes": _runtimes()}))
        return [
            *("dockerd", "--host", self.address, "--iptables=false", "--ip6tables=false"),
            *("--data-root", str(self.directory / "data")),
            *("--exec-root", str(self.directory / "exec")),
            *("--pidfile", str(self.directory / "docker.pid")),
            *("--config-file", str(config), "--bridge=none"),
            *("--default-address-pool", _POOL, "--log-level=warn"),
        ]

    def kill(self) -> None:
        """As a crash does: its containers go on until it comes back."""
        helper = _number(self.directory / "exec/containerd/containerd.pid")
        self._end(signal.SIGKILL)
        # It dies with the engine; while it is still listed, a new engine would not start another.
        until = time.monotonic() + 30
        while helper and Path(f"/proc/{helper}").exists() and time.monotonic() < until:
            time.sleep(0.05)

    def clear(self) -> None:
        """As a service manager's stop would, its containers end first."""
        end_containers(self.socket)

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
        super().remove()


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
            *("--events-backend", "none", "system", "service", "--time", "0", self.address),
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
    return daemons.new_directory("paddock-test-engine-")


def start_docker() -> dict[str, Any]:
    """The Docker that the operator names or that runs; one of our own where none does."""
    if host := os.environ.get("PADDOCK_TEST_DOCKER_HOST"):
        return {"address": host, "watcher": None}
    if answers(_USUAL):
        return {"address": f"unix://{_USUAL}", "watcher": None}
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
    return start_watched("tests.docker_engine", kind, str(new_directory()))


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


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
    watch_over(KINDS[sys.argv[1]](Path(sys.argv[2])), int(sys.argv[3]))
