"""Sandboxes that no process of the host can enter: the guest starts inside, from a zip file."""

import json
import math
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from paddock.adapters.providers.host import rooted
from paddock.adapters.providers.local.bundle import GUEST_STATE, BundleSpec, bind
from paddock.adapters.providers.local.door import SOCKET, TOKEN, open_door
from paddock.adapters.providers.local.records import SandboxRecord
from paddock.domain.errors import InvalidRequest
from paddock.domain.sandbox import Resources
from paddock.guest import pack

_KERNEL_MIB = 128
_KERNEL_THREADS = 256
_ZIP = "/dev/.paddock-guest.zip"
_DOOR = "/run/paddock-door"
_CGROUPS = {
    "destination": "/sys/fs/cgroup",
    "type": "cgroup",
    "source": "cgroup",
    "options": ["nosuid", "noexec", "nodev"],
}
"""gVisor's own: they count for the guest what is used inside, and know nothing of the host's."""
_PYTHONS = ("usr/bin/python3", "usr/local/bin/python3", "bin/python3")


def prepare(spec: BundleSpec, record: SandboxRecord, volume: Path, archive: str) -> BundleSpec:
    """The bundle of a sandbox whose first process is the packed guest."""
    python = find_python(Path(record.lower), record.template)
    return replace(
        spec,
        init="",
        resources=with_kernel(record.resources),
        processes_of_user=record.resources.pids,
        init_argv=(
            *(python, "-I", "-S", _ZIP),
            *("--socket", f"{_DOOR}/{SOCKET}"),
            *("--token-file", f"{_DOOR}/{TOKEN}"),
            *("--state-dir", GUEST_STATE),
            *("--sandbox-id", record.ref),
            *("--user", record.user),
            *("--memory-limit", str(record.resources.memory_mib << 20)),
            *("--pids-limit", str(record.resources.pids)),
            *(("--workdir", record.workdir) if record.workdir else ()),
        ),
        extra_mounts=(
            _CGROUPS,
            bind(archive, _ZIP, "ro"),
            bind(str(open_door(volume, record.token)), _DOOR, "rw", "noexec"),
            *spec.extra_mounts,
        ),
    )


def archive(directory: Path, name: str = "") -> str:
    """The guest as one file: that of this installation, or the one that a guest began with."""
    return str(directory / name) if name else pack.ensure(str(directory))


def archive_of(bundle: Path) -> str:
    """The name of the file that the guest in a bundle was started from."""
    source = source_of(bundle, _ZIP)
    assert source is not None
    return source.name


def source_of(bundle: Path, destination: str) -> Path | None:
    """What of the host is mounted there by a bundle."""
    mounts = json.loads((bundle / "config.json").read_text())["mounts"]
    found = (Path(each["source"]) for each in mounts if each["destination"] == destination)
    return next(found, None)


def with_kernel(resources: Resources) -> Resources:
    """What the host has to allow, so that a sandbox's kernel can live beside what was asked for.

    The limits that were asked for are kept inside. These are the wall behind them: a sandbox that
    gets there ends as a whole. Memory that a program has freed is the kernel's for a while, hence
    the quarter; a process there is two or three here, and each may run on every processor.
    """
    pids = resources.pids
    kernel_mib = _KERNEL_MIB + resources.memory_mib // 4 + pids // 4
    return replace(
        resources,
        memory_mib=resources.memory_mib + kernel_mib,
        pids=_KERNEL_THREADS + pids * (2 + max(2, math.ceil(resources.cpus))),
    )


def layer(parent: Path) -> Path:
    """One more layer below the sandbox's own: something in /tmp, as on most machines.

    On an empty one runsc mounts a file system in memory, and what is written there would be no
    part of a snapshot, nor be there after a stop.
    """
    made = parent / "gvisor"
    made.mkdir(mode=0o700, exist_ok=True)  # nobody else on the host shall write there
    for directory in (made / "tmp", made / "tmp" / ".X11-unix"):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o1777)
    return made


def find_python(lower: Path, template: str) -> str:
    """Where the image has its Python, which this kind of sandbox needs."""
    with rooted.opened_root(lower) as root:
        for candidate in _PYTHONS:
            # Resolve links inside the image: otherwise they lead to directories of the host.
            with suppress(OSError), rooted.opened(root, candidate, os.O_PATH | os.O_NOFOLLOW):
                return f"/{candidate}"
    raise InvalidRequest(
        f"template {template} has no python3, and a gVisor sandbox needs one for its guest",
        remediation="install Python 3.9 or newer in the template, or use the runtime crun",
    )
