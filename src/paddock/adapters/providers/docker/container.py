"""From what a sandbox shall be to the container that an engine understands. Pure.

The root file system is writable, because agents install things; it is a layer of the sandbox's own
and goes with it. Everything else is as closed as an engine allows: no capability but those the
guest cannot work without, nothing that a setuid program could win, the same system calls as on the
local provider, no port published, no socket of the engine inside, no log that fills the host.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paddock.adapters.providers.host import seccomp
from paddock.adapters.providers.host.masked_paths import MASKED
from paddock.domain.sandbox import Resources

CAPABILITIES = {
    "SETUID": "start commands as another user",
    "SETGID": "give them that user's groups",
    "KILL": "end commands of every user at their deadline",
    "CHOWN": "give an uploaded file to the user it is for",
    "DAC_OVERRIDE": "read and write files of every user on their behalf",
    "FOWNER": "change the mode and times of such a file",
}
"""What root keeps inside, and what for. A command as `user` has none of them."""

GUEST_STATE = "/var/lib/paddock"
_PERIODLESS_CPU = 1_000_000_000
_ENOSYS = 38

# Docker before 23 does not know a default error and answers EPERM to whatever is not listed. A C
# library asks for these first and falls back only when told that they do not exist.
_FALLS_BACK_ON_ENOSYS = ("clone3",)


@dataclass(frozen=True, slots=True)
class MainProcess:
    """What the container runs first, and the files of the host that it needs for it."""

    argv: tuple[str, ...]
    mounts: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Everything that decides a container."""

    image: str
    labels: dict[str, str]
    resources: Resources
    main: MainProcess
    network: str
    """`none`, or the name of the open network."""
    nofile: int
    seccomp: str
    """The profile, or the path of a file with it; empty leaves the engine's own in force."""
    nproc: int = 0
    """0 leaves it to the engine. It counts per user on the whole host: PidsLimit is the limit."""
    runtime: str = ""
    tmp_mib: int = 0
    mounts: tuple[dict[str, Any], ...] = ()
    cpus: str = ""
    """Those that it runs on, which `nproc` counts; empty leaves it to the engine."""
    size_mib: int = 0
    """Of the whole root file system, the image included; 0 where the engine cannot limit it."""


def build(spec: ContainerSpec) -> dict[str, Any]:
    """The body of the engine's order to create it."""
    return {
        "Image": spec.image,
        "Labels": spec.labels,
        "Hostname": "sandbox",
        "User": "0:0",
        "WorkingDir": "/",
        "Entrypoint": list(spec.main.argv[:1]),
        "Cmd": list(spec.main.argv[1:]),
        "StopSignal": "SIGTERM",
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {**_fence(spec), **_limits(spec)},
    }


def _fence(spec: ContainerSpec) -> dict[str, Any]:
    return {
        "CapDrop": ["ALL"],
        "CapAdd": list(CAPABILITIES),
        "SecurityOpt": [
            "no-new-privileges",
            *([f"seccomp={spec.seccomp}"] if spec.seccomp else ()),
        ],
        "Privileged": False,
        "CgroupnsMode": "private",
        "IpcMode": "private",
        "NetworkMode": spec.network,
        "PublishAllPorts": False,
        "Init": False,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "none"},
        "Mounts": [*spec.main.mounts, *spec.mounts],
        "Tmpfs": _tmpfs(spec.tmp_mib),
        "MaskedPaths": list(MASKED),
        **({"Runtime": spec.runtime} if spec.runtime else {}),
    }


def _tmpfs(tmp_mib: int) -> dict[str, str]:
    mounts = {"/run": "rw,nosuid,nodev,mode=755,size=64m"}
    if tmp_mib:
        mounts["/tmp"] = f"rw,exec,nosuid,nodev,mode=1777,size={tmp_mib}m"  # noqa: S108 - inside
    return mounts


def _limits(spec: ContainerSpec) -> dict[str, Any]:
    resources = spec.resources
    memory = resources.memory_mib << 20
    return {
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": int(resources.cpus * _PERIODLESS_CPU),
        **({"CpusetCpus": spec.cpus} if spec.cpus else {}),
        "PidsLimit": resources.pids,
        "ShmSize": 64 << 20,
        "Ulimits": [
            {"Name": "nofile", "Soft": spec.nofile, "Hard": spec.nofile},
            {"Name": "core", "Soft": 0, "Hard": 0},
            *([{"Name": "nproc", "Soft": spec.nproc, "Hard": spec.nproc}] if spec.nproc else ()),
        ],
        **({"StorageOpt": {"size": f"{spec.size_mib}m"}} if spec.size_mib else {}),
    }


def seccomp_profile() -> str:
    """The profile of the local provider, in the form that Docker and Podman take."""
    profile = seccomp.oci_profile()
    answers_enosys = {
        "names": list(_FALLS_BACK_ON_ENOSYS),
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": _ENOSYS,
    }
    return json.dumps({**profile, "syscalls": [*profile["syscalls"], answers_enosys]})


def bind(source: str, target: str) -> dict[str, Any]:
    """A file or a directory of the host, read-only."""
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": True}


def capability_names() -> Sequence[str]:
    return tuple(f"CAP_{name}" for name in CAPABILITIES)
