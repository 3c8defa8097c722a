"""What the local provider needs of this host, looked at one by one. Works without root too."""

import asyncio
import contextlib
import ctypes.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from paddock.adapters.providers.host import agents
from paddock.adapters.providers.host.cgroups import host_hierarchies
from paddock.adapters.providers.host.init import find_init
from paddock.adapters.providers.local import checkpoint, forwarding, runtime
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.id_ranges import FIRST
from paddock.adapters.providers.local.layout import Layout
from paddock.adapters.providers.local.network import OpenNetwork
from paddock.adapters.providers.local.opening import Parts
from paddock.domain.errors import PaddockError
from paddock.ports.provider import Finding, Health, Status

_NEEDED = frozenset({"memory", "pids", "cpu", "freezer"})
_DISK_FLOOR_MIB = 5 * 1024


async def check(config: LocalConfig, parts: Parts) -> Health:
    """The host's findings and those that only an opened provider knows."""
    looked = await asyncio.to_thread(inspect, config)
    memory = checkpoint.finding(config, parts.memory)
    known = [memory if finding.name == memory.name else finding for finding in looked]
    findings = [*known, _storage(parts), _mapping(parts), *_records(parts)]
    usable = all(finding.status is not Status.MISSING for finding in findings)
    return Health(usable, tuple(findings))


def inspect(config: LocalConfig) -> list[Finding]:
    """Everything that can be known of the host without opening anything."""
    looks: tuple[Callable[[LocalConfig], Finding], ...] = (
        _kernel,
        _root,
        _runtime,
        _strong_runtime,
        _init,
        _cgroups,
        _overlay,
        _seccomp,
        _user_namespaces,
        _storage_tools,
        _disk,
        _template_tools,
        _agent_tools,
        _network_tools,
        _open_network,
        checkpoint.finding,
    )
    return [look(config) for look in looks]


def _kernel(_: LocalConfig) -> Finding:
    release = platform.release()
    major, minor = (int(part) for part in release.split("-")[0].split(".")[:2])
    if (major, minor) >= (5, 12):
        return Finding("kernel", Status.OK, release)
    return Finding(
        "kernel",
        Status.DEGRADED,
        f"{release}: no id-mapped mounts, so no user namespaces",
        "use Linux 5.12 or newer",
    )


def _root(_: LocalConfig) -> Finding:
    if os.geteuid() == 0:
        return Finding("privileges", Status.OK, "root")
    return Finding(
        "privileges",
        Status.MISSING,
        f"uid {os.geteuid()}",
        "run as root (sudo), or use Docker or Podman: `export PADDOCK_PROVIDER=docker`",
    )


def _runtime(config: LocalConfig) -> Finding:
    try:
        chosen = runtime.choose(config.runtime)
    except PaddockError as error:
        return Finding("runtime", Status.MISSING, error.message, error.remediation)
    if chosen.name == "runc":
        return Finding(
            "runtime",
            Status.DEGRADED,
            f"{chosen.version}; works, but starts half as fast as crun",
            "apt-get install crun",
        )
    return Finding("runtime", Status.OK, chosen.version)


def _strong_runtime(_: LocalConfig) -> Finding:
    if "runsc" in runtime.installed():
        found = runtime.installed()["runsc"]
        if why := runtime.outdated(found):
            newer = "install a runsc of 2023 or newer; Debian 12 has one in its backports"
            return Finding("runtime gVisor", Status.DEGRADED, why, newer)
        return Finding("runtime gVisor", Status.OK, found.version)
    return Finding(
        "runtime gVisor",
        Status.DEGRADED,
        "runsc is not installed; sandboxes share the host's kernel",
        "for hostile code: install runsc and ask for it in the template",
    )


def _init(config: LocalConfig) -> Finding:
    try:
        return Finding("init", Status.OK, find_init(config.init, "local.init"))
    except PaddockError as error:
        return Finding("init", Status.MISSING, error.message, error.remediation)


def _cgroups(_: LocalConfig) -> Finding:
    hierarchies = host_hierarchies()
    if hierarchies.unified:
        words = (hierarchies.unified / "cgroup.controllers").read_text().split()
        available = {*words, "freezer"}
    else:
        available = {name for names, _ in hierarchies.v1 for name in names}
    missing = sorted(_NEEDED - available)
    found = f"version {hierarchies.version}"
    if not missing:
        return Finding("cgroups", Status.OK, found)
    return Finding(
        "cgroups",
        Status.MISSING,
        f"{found} without {', '.join(missing)}",
        "boot with these controllers enabled (cgroup_enable=memory on some boards)",
    )


def _overlay(_: LocalConfig) -> Finding:
    if "overlay" in Path("/proc/filesystems").read_text() or shutil.which("modprobe"):
        return Finding("overlayfs", Status.OK, "available")
    return Finding("overlayfs", Status.MISSING, "not in this kernel", "load the overlay module")


def _seccomp(_: LocalConfig) -> Finding:
    if ctypes.util.find_library("seccomp") or Path("/usr/lib/libseccomp.so.2").exists():
        return Finding("seccomp", Status.OK, "libseccomp found")
    return Finding("seccomp", Status.MISSING, "no libseccomp", "apt-get install libseccomp2")


def _user_namespaces(config: LocalConfig) -> Finding:
    if config.user_namespace == "off":
        found = "off by setting: no-new-privileges stays on, sudo does not work inside"
        return Finding("user namespaces", Status.DEGRADED, found, "set local.user_namespace=auto")
    limit = Path("/proc/sys/user/max_user_namespaces")
    with contextlib.suppress(OSError, ValueError):
        if int(limit.read_text()) > 0:
            return Finding("user namespaces", Status.OK, f"ids from {FIRST} up")
    return Finding(
        "user namespaces",
        Status.DEGRADED,
        "not allowed: no-new-privileges stays on, sudo does not work inside",
        "sysctl user.max_user_namespaces=15000",
    )


def _mapping(parts: Parts) -> Finding:
    if parts.idmap is not None or parts.config.user_namespace == "off":
        return Finding("id-mapped mounts", Status.OK, "usable" if parts.idmap else "not asked for")
    return Finding(
        "id-mapped mounts",
        Status.DEGRADED,
        f"refused on {parts.storage.pool}: sandboxes run without a user namespace",
        "put local.data_dir on btrfs, ext4 or xfs, with Linux 5.15 or newer",
    )


def _records(parts: Parts) -> Iterator[Finding]:
    """Nothing to say unless one is damaged."""
    for error in parts.life.records.damaged():
        yield Finding("record", Status.DEGRADED, error.message, error.remediation)


def _storage_tools(_: LocalConfig) -> Finding:
    if shutil.which("mkfs.btrfs"):
        return Finding("storage tools", Status.OK, "btrfs-progs found")
    return Finding(
        "storage tools",
        Status.DEGRADED,
        "no mkfs.btrfs: snapshots and forks copy files",
        "apt-get install btrfs-progs",
    )


def _storage(parts: Parts) -> Finding:
    storage = parts.storage
    limits = "enforced" if storage.enforces_disk_limit else "watched"
    found = "; ".join([f"{storage.name} at {storage.pool}, disk limits {limits}", *storage.notes])
    status = Status.OK if storage.name == "btrfs" else Status.DEGRADED
    fix = "" if status is Status.OK else "install btrfs-progs, or put local.data_dir on btrfs"
    return Finding("storage", status, found, fix)


def _disk(config: LocalConfig) -> Finding:
    place = next(path for path in _upwards(config.data_dir) if path.exists())
    free = shutil.disk_usage(place).free >> 20
    found = f"{free / 1024:.1f} GiB free at {place}"
    if free >= _DISK_FLOOR_MIB:
        return Finding("disk", Status.OK, found)
    fix = f"free at least {_DISK_FLOOR_MIB // 1024} GiB, or set local.data_dir elsewhere"
    return Finding("disk", Status.DEGRADED, found, fix)


def _upwards(path: Path) -> Iterator[Path]:
    yield path
    yield from path.parents


def _template_tools(_: LocalConfig) -> Finding:
    tools = ("mmdebstrap", "skopeo", "umoci", "bwrap")
    missing = [name for name in tools if not shutil.which(name)]
    if not missing:
        return Finding("template tools", Status.OK, ", ".join(tools))
    fix = f"apt-get install {' '.join(missing).replace('bwrap', 'bubblewrap')}"
    return Finding("template tools", Status.DEGRADED, f"no {', '.join(missing)}", fix)


def _agent_tools(_: LocalConfig) -> Finding:
    return agents.finding()


def _network_tools(_: LocalConfig) -> Finding:
    missing = [name for name in ("ip", "nft", "nsenter") if not shutil.which(name)]
    if not missing:
        return Finding("network tools", Status.OK, "ip, nft, nsenter")
    fix = "apt-get install iproute2 nftables util-linux"
    return Finding("network tools", Status.DEGRADED, f"no {', '.join(missing)}", fix)


def _open_network(config: LocalConfig) -> Finding:
    run = Layout.of(config.data_dir, config.run_root).run
    return forwarding.look(OpenNetwork(run.name, run).bridge)
