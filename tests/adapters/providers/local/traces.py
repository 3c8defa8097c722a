"""What an installation leaves on the host: everything that a leak would show up in."""

import os
from dataclasses import dataclass
from pathlib import Path

from paddock.adapters.providers.host.cgroups import host_hierarchies
from paddock.adapters.providers.local.layout import Layout, archives_of, image_of


@dataclass(frozen=True)
class Traces:
    """Names of all that exists; equal before and after means that nothing was left."""

    sandboxes: frozenset[str]
    volumes: frozenset[str]
    snapshots: frozenset[str]
    memories: frozenset[str]
    archives: frozenset[str]
    cgroups: frozenset[str]
    processes: frozenset[int]
    mounts: frozenset[str]
    bundles: frozenset[str]
    sockets: frozenset[str]
    runtime_state: frozenset[str]
    keys: frozenset[str]
    links: frozenset[str]
    locks: frozenset[str]


def look(data_dir: Path, run_root: Path = Path("/run/paddock")) -> Traces:
    layout = Layout.of(data_dir, run_root)
    cgroups = [
        directory
        for root in host_hierarchies().roots()
        for directory in _children(root / layout.cgroup_root)
        if directory.is_dir()
    ]
    return Traces(
        sandboxes=_names(layout.sandboxes),
        volumes=_names(layout.data / "pool" / "volumes"),
        snapshots=_names(layout.data / "pool" / "snapshots") | _names(layout.snapshots),
        memories=_names(image_of(layout.data / "pool", "")),
        archives=_names(archives_of(layout)),
        cgroups=frozenset(str(directory) for directory in cgroups),
        processes=frozenset(pid for directory in cgroups for pid in _pids(directory)),
        mounts=_mounts(layout),
        bundles=_names(layout.run / "bundles"),
        sockets=_names(layout.run / "guests") | _names(layout.run / "ports"),
        runtime_state=_names(layout.runtime_state),
        keys=_names(layout.keys),
        links=frozenset(
            name for name in os.listdir("/sys/class/net") if layout.run.name[:6] in name
        ),
        locks=_names(layout.locks),
    )


def _children(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except FileNotFoundError:
        return []


def _names(directory: Path) -> frozenset[str]:
    return frozenset(path.name for path in _children(directory))


def _pids(cgroup: Path) -> list[int]:
    try:
        return [int(line) for line in (cgroup / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _mounts(layout: Layout) -> frozenset[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = (line.split(" ")[4] for line in lines)
    ours = (str(layout.data), str(layout.run))
    return frozenset(point for point in points if point.startswith(ours))
