"""Real engines for tests, started for as long as the tests take.

An engine keeps everything in one directory and shares nothing with one that the host runs. Docker
leaves the host's firewall alone. This file is also the program that watches over an engine.
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
from pathlib import Path
from typing import Any, ClassVar

from tests import daemons
from tests.daemons import CannotStart, Daemon, start_watched, watch_over

_TABLES = ("filter", "nat")
_POOL = "base=10.214.0.0/16,size=24"


class OwnEngine(Daemon):
    """An engine with a directory of its own."""

    programs: ClassVar[tuple[str, ...]]

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.socket = directory / "docker.sock"

    @property
    def address(self) -> str:
        return f"unix://{self.socket}"

    def _answers(self) -> bool:
        return answers(str(self.socket))

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


class _Containerd(Daemon):
    """The containerd of one engine."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.socket = directory / "containerd.sock"

    @property
    def address(self) -> str:
        return str(self.socket)

    def _answers(self) -> bool:
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as client:
            return client.connect_ex(self.address) == 0

    def _command(self) -> list[str]:
        config = self.directory / "containerd.toml"
        config.write_text(
            f'version = 2\nroot = "{self.directory}/data/containerd"\n'
            f'state = "{self.directory}/exec/containerd"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            f'[grpc]\naddress = "{self.address}"\n'
            f'[plugins."io.containerd.internal.v1.opt"]\npath = "{self.directory}/opt"\n'
        )
        return ["containerd", "--config", str(config), "--log-level", "warn"]


class OwnDocker(OwnEngine):
    """Docker's engine. It has its own containerd; without one it would use the host's."""

    programs = ("dockerd", "containerd")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._containerd = _Containerd(directory)

    def _command(self) -> list[str]:
        (self.directory / "docker.pid").unlink(missing_ok=True)
        config = self.directory / "daemon.json"
        config.write_text(json.dumps({"runtimes": _runtimes()}))
        return [
            *("dockerd", "--host", self.address, "--iptables=false", "--ip6tables=false"),
            *("--data-root", str(self.directory / "data")),
            *("--exec-root", str(self.directory / "exec")),
            *("--pidfile", str(self.directory / "docker.pid")),
            *("--containerd", self._containerd.address),
            *("--config-file", str(config), "--bridge=none"),
            *("--default-address-pool", _POOL, "--log-level=warn"),
        ]

    def start(self) -> None:
        self._containerd.start()
        super().start()

    def stop(self) -> None:
        super().stop()
        self._containerd.stop()

    def kill(self) -> None:
        """As a crash does: its containers go on until it comes back."""
        super().kill()
        self._containerd.kill()


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

    programs = ("podman",)

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


KINDS = {"docker": OwnDocker, "podman": OwnPodman}


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
    """One of our own, unless PADDOCK_TEST_DOCKER_HOST names another."""
    if host := os.environ.get("PADDOCK_TEST_DOCKER_HOST"):
        return {"address": host, "watcher": None}
    return _start_own("docker")


def start_podman() -> dict[str, Any]:
    """Always one of our own."""
    if shutil.which("podman") is not None and not Path("/usr/lib/podman/netavark").exists():
        raise CannotStart("netavark, which gives its containers a network, is not installed")
    return _start_own("podman")


def _start_own(kind: str) -> dict[str, Any]:
    """The value to share between parallel workers: where it is, and who watches over it."""
    if os.geteuid() != 0:
        raise CannotStart("only root can start an engine")
    for program in KINDS[kind].programs:
        if shutil.which(program) is None:
            raise CannotStart(f"{program} is not installed")
    return start_watched("tests.docker_engine", kind, str(new_directory()))


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
