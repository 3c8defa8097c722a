"""From what a sandbox shall be to the OCI bundle that a runtime understands. Pure."""

from dataclasses import dataclass
from typing import Any

from paddock.adapters.providers.host import capabilities, seccomp
from paddock.adapters.providers.host.init import INIT
from paddock.adapters.providers.host.masked_paths import MASKED
from paddock.domain.sandbox import Resources

GUEST_STATE = "/run/paddock"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The kernel has about 3000 terminals for all sandboxes together.
_TERMINALS = ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5", "max=32")
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


@dataclass(frozen=True, slots=True)
class IdMap:
    """Ids 0 up to `count` inside are `first` up to `first + count` on the host."""

    first: int = 100_000
    count: int = 65_536


@dataclass(frozen=True, slots=True)
class BundleSpec:
    """Everything that decides a bundle."""

    root: str
    init: str
    """A static program on the host that only reaps, bind-mounted as the first process; empty when
    the image's own program is."""
    guest_state: str
    """The directory on the host in which the guest keeps its runs."""
    cgroup_path: str
    resources: Resources
    idmap: IdMap | None
    """How IDs inside map to IDs on the host; None maps them to themselves."""
    no_new_privs: bool
    init_argv: tuple[str, ...] = (INIT, "-P")
    extra_mounts: tuple[dict[str, Any], ...] = ()
    processes_of_user: int | None = None
    """How many one user may have, for kernels that know no control groups."""
    swap_accounting: bool = False
    read_only: bool = False
    """Nothing on the root file system can be changed."""
    user_namespace: str = ""
    """The path of a user namespace with this mapping."""


def build(spec: BundleSpec) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "ociVersion": "1.0.2",
        "process": _process(spec),
        "root": {"path": spec.root, "readonly": spec.read_only},
        "hostname": "sandbox",
        "mounts": _mounts(spec),
        "linux": {
            "namespaces": _namespaces(spec),
            **_mappings(spec.idmap),
            "resources": _limits(spec.resources, spec.swap_accounting),
            "cgroupsPath": "/" + spec.cgroup_path,
            "seccomp": seccomp.oci_profile(),
            "maskedPaths": list(MASKED),
            "readonlyPaths": list(_READ_ONLY),
        },
    }


def _process(spec: BundleSpec) -> dict[str, Any]:
    kept = list(capabilities.KEPT)
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": list(spec.init_argv),
        "env": [f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8"],
        "cwd": "/",
        "capabilities": {"bounding": kept, "effective": kept, "permitted": kept},
        "noNewPrivileges": spec.no_new_privs,
        "oomScoreAdj": 0,
        **_rlimits(spec.processes_of_user),
    }


def _rlimits(processes: int | None) -> dict[str, Any]:
    if processes is None:
        return {}
    return {"rlimits": [{"type": "RLIMIT_NPROC", "hard": processes, "soft": processes}]}


def _namespaces(spec: BundleSpec) -> list[dict[str, str]]:
    found = [{"type": kind} for kind in ("mount", "pid", "ipc", "uts", "network", "cgroup")]
    return [*found, *([{"type": "user", "path": spec.user_namespace}] if spec.idmap else [])]


def _mappings(idmap: IdMap | None) -> dict[str, Any]:
    if idmap is None:
        return {}
    mapping = [{"containerID": 0, "hostID": idmap.first, "size": idmap.count}]
    return {"uidMappings": mapping, "gidMappings": mapping}


def _limits(resources: Resources, swap_accounting: bool) -> dict[str, Any]:
    memory = resources.memory_mib << 20
    return {
        "devices": [{"allow": False, "access": "rwm"}],
        "memory": {"limit": memory, **({"swap": memory} if swap_accounting else {})},
        "cpu": {"quota": int(resources.cpus * 100_000), "period": 100_000},
        "pids": {"limit": resources.pids},
    }


def _tmpfs(destination: str, *options: str) -> dict[str, Any]:
    return {
        "destination": destination,
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", "nodev", *options],
    }


def bind(source: str, destination: str, *options: str) -> dict[str, Any]:
    return {
        "destination": destination,
        "type": "bind",
        "source": source,
        "options": ["bind", "nosuid", "nodev", *options],
    }


def _mounts(spec: BundleSpec) -> list[dict[str, Any]]:
    return [
        {
            "destination": "/proc",
            "type": "proc",
            "source": "proc",
            "options": ["nosuid", "noexec", "nodev"],
        },
        {
            "destination": "/dev",
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["nosuid", "strictatime", "mode=755", "size=1024k"],
        },
        *([bind(spec.init, INIT, "ro")] if spec.init else []),
        {
            "destination": "/dev/pts",
            "type": "devpts",
            "source": "devpts",
            "options": list(_TERMINALS),
        },
        _tmpfs("/dev/shm", "noexec", "mode=1777", "size=256m"),  # noqa: S108 - inside the sandbox
        {
            "destination": "/dev/mqueue",
            "type": "mqueue",
            "source": "mqueue",
            "options": ["nosuid", "noexec", "nodev"],
        },
        {
            "destination": "/sys",
            "type": "sysfs",
            "source": "sysfs",
            "options": ["nosuid", "noexec", "nodev", "ro"],
        },
        _tmpfs("/run", "mode=755", "size=64m"),
        bind(spec.guest_state, GUEST_STATE, "rw", "noexec"),
        *spec.extra_mounts,
    ]
