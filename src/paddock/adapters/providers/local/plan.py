"""What a request for a sandbox comes down to on this host. Pure, but for looking at the host."""

import os
from dataclasses import dataclass
from pathlib import Path

from paddock.adapters.providers.local.bundle import IdMap
from paddock.adapters.providers.local.records import SnapshotRecord
from paddock.domain.errors import Conflict, InvalidRequest, Unsupported
from paddock.domain.sandbox import Resources
from paddock.ports.provider import SandboxSpec


@dataclass(frozen=True, slots=True)
class Image:
    """Processes on disk, and the file that the guest among them was started from."""

    directory: Path
    guest: str
    agents: bool = False
    """They were shown the host's agents."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions, before anything is made."""

    template: str
    digest: str
    lower: str
    runtime: str
    idmap: IdMap | None
    no_new_privs: bool
    user: str = "user"
    workdir: str = ""
    env: tuple[tuple[str, str], ...] = ()
    """Of the template or snapshot; the request's own come on top."""
    seed: Path | None = None
    """A volume to copy; None begins with an empty one."""
    source: str = ""
    """The sandbox whose volume the seed is, when it may be running."""
    limits: Resources | None = None
    """Where they cannot be changed any more once it runs: those that were asked for."""

    image: Image | None = None
    """Processes that go on, instead of a guest that starts."""

    @property
    def poolable(self) -> bool:
        return self.seed is None


def check_source(spec: SandboxSpec) -> None:
    if bool(spec.template) == (spec.snapshot is not None):
        raise InvalidRequest(
            "a sandbox starts from a template or from a snapshot, not from both or neither",
            remediation="give exactly one of template and snapshot",
        )


def check_memory(record: SnapshotRecord, spec: SandboxSpec, host: Resources, version: str) -> None:
    """Processes that go on keep what they began with: nothing here could change it for them."""
    memory = record.memory
    if memory is None:
        return
    if version != memory.runtime:
        raise Conflict(
            f"the memory in snapshot {record.id} was written by {memory.runtime}, and here is "
            f"{version}, which may read it differently",
            remediation="install that version again, or make a template of the snapshot, which "
            "takes its disk alone",
        )
    kept, asked = memory.resources, spec.resources.fitted(host)
    if (asked.memory_mib, asked.pids) != (kept.memory_mib, kept.pids):
        raise InvalidRequest(
            f"the processes in snapshot {record.id} go on with the limits they began with, "
            f"{kept.memory_mib} MiB and {kept.pids} processes; asked for were "
            f"{asked.memory_mib} MiB and {asked.pids}",
            remediation="ask for the same; processors and disk may differ",
        )
    if spec.hardened not in (None, record.no_new_privs):
        raise InvalidRequest(
            f"the processes in snapshot {record.id} go on as hardened as they were",
            remediation="leave `hardened` out",
        )


def check_network(engine: str) -> None:
    if engine == "runsc":
        raise Unsupported(
            "a gVisor sandbox has a network of its own that nothing of the host leads to",
            remediation="use the runtime crun where a network is needed",
        )


def granted(asked: Resources, pool: Path) -> Resources:
    """Return the resources of a sandbox. InvalidRequest if the host has less."""
    host = host_resources(pool)
    fitting = asked.fitted(host)
    fitting.check_within(host)
    return fitting


def host_resources(pool: Path) -> Resources:
    """All that this host has: no sandbox can be given more."""
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    disk = os.statvfs(pool)
    return Resources(
        cpus=float(os.cpu_count() or 1),
        memory_mib=pages * page >> 20,
        disk_mib=max(16, disk.f_blocks * disk.f_frsize >> 20),
        pids=int(Path("/proc/sys/kernel/pid_max").read_text()),
    )
