"""Sandboxes that no process of the host can enter: the guest starts inside, from a zip file.

Its socket comes out through the door: a directory of the sandbox's own volume, so that what is put
there counts against the sandbox's own disk. The door is open only until the guest has made its
socket. Then the socket is taken to where the sandbox cannot reach it and the directory is removed,
in which nothing can be made any more even by those who still have it open. From then on nothing
that happens inside can lead the host to another socket.
"""

import asyncio
import math
import os
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from paddock.adapters.providers.local.bundle import GUEST_STATE, BundleSpec, bind
from paddock.adapters.providers.local.records import SandboxRecord
from paddock.adapters.providers.local.storage.trees import remove_tree
from paddock.domain.errors import Broken, InvalidRequest, Unavailable
from paddock.domain.sandbox import Resources
from paddock.guest import pack

_START_S = 20.0
_KERNEL_MIB = 128
_KERNEL_THREADS = 256
_ZIP = "/dev/.paddock-guest.zip"
_DOOR = "/run/paddock-door"
_TOKEN = "token"  # noqa: S105 - a file name
_SOCKET = "guest.sock"
_CGROUPS = {
    "destination": "/sys/fs/cgroup",
    "type": "cgroup",
    "source": "cgroup",
    "options": ["nosuid", "noexec", "nodev"],
}
"""gVisor's own: they count for the guest what is used inside, and know nothing of the host's."""
_PYTHONS = ("usr/bin/python3", "usr/local/bin/python3", "bin/python3")


def prepare(spec: BundleSpec, record: SandboxRecord, volume: Path, archives: Path) -> BundleSpec:
    """The bundle of a sandbox whose first process is the packed guest."""
    archive = pack.ensure(str(archives))
    python = find_python(Path(record.lower), record.template)
    return replace(
        spec,
        init="",
        resources=with_kernel(record.resources),
        processes_of_user=record.resources.pids,
        init_argv=(
            *(python, "-I", "-S", _ZIP),
            *("--socket", f"{_DOOR}/{_SOCKET}"),
            *("--token-file", f"{_DOOR}/{_TOKEN}"),
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
            bind(str(_open_door(volume, record.token)), _DOOR, "rw", "noexec"),
        ),
    )


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


def _open_door(volume: Path, token: str) -> Path:
    door = volume / "door"
    remove_tree(door)  # from a start that failed, or in the volume that this one was copied of
    remove_tree(volume / _SOCKET)
    door.mkdir(mode=0o700)
    (door / _TOKEN).touch(mode=0o600, exist_ok=False)
    (door / _TOKEN).write_text(token)
    return door


async def close_door(volume: Path, address: Path, is_alive: Callable[[], bool]) -> None:
    """Wait for the guest, and take its socket to where it is reached from then on."""
    door, taken = volume / "door", volume / _SOCKET
    listening = await _listening(door / _SOCKET, is_alive)
    try:
        (door / _SOCKET).rename(taken)
        (door / _TOKEN).unlink()
        door.rmdir()
    except OSError as error:
        raise Broken(
            f"sandbox {volume.name} changes what its guest starts with: {error}"
        ) from error
    if _identity(taken.lstat()) != listening:  # from now on nothing inside can exchange it
        raise Broken(f"sandbox {volume.name} exchanged its guest's socket for something else")
    address.unlink(missing_ok=True)
    address.symlink_to(taken)  # a socket's own path may not be as long as the pool's can be


async def _listening(path: Path, is_alive: Callable[[], bool]) -> tuple[int, int]:
    """Which file the socket is, once somebody listens there. Before, gVisor is not done with it."""
    sandbox, until = path.parts[-3], time.monotonic() + _START_S
    while True:
        alive = is_alive()
        if (found := _try(path)) is not None:
            return found
        if not alive:
            raise Unavailable(
                f"the guest of sandbox {sandbox} ended before it listened",
                remediation="it needs a Python 3.9 or newer in the template",
            )
        if time.monotonic() > until:
            raise Unavailable(f"the guest of sandbox {sandbox} does not listen after {_START_S} s")
        await asyncio.sleep(0.005)


def _try(path: Path) -> tuple[int, int] | None:
    """Connect to a socket with this very name; what else may stand there is not followed."""
    try:
        file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            found = os.fstat(file)
            if not stat.S_ISSOCK(found.st_mode):
                raise Broken(f"what a sandbox offers as its guest's socket at {path} is none")
            probe.connect(f"/proc/self/fd/{file}")
        except (ConnectionRefusedError, BlockingIOError):
            return None
        finally:
            os.close(file)
    return _identity(found)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def find_python(lower: Path, template: str) -> str:
    """Where the image has its Python, which this kind of sandbox needs."""
    for candidate in _PYTHONS:
        path = lower / candidate
        if path.exists() or path.is_symlink():
            return f"/{candidate}"
    raise InvalidRequest(
        f"template {template} has no python3, and a gVisor sandbox needs one for its guest",
        remediation="install Python 3.9 or newer in the template, or use the runtime crun",
    )
