"""What a request for a sandbox comes down to on this host. Pure, but for looking at the host."""

import os
from dataclasses import dataclass
from pathlib import Path

from paddock.adapters.providers.local.bundle import IdMap
from paddock.domain.errors import InvalidRequest, Unsupported
from paddock.domain.sandbox import Resources
from paddock.ports.provider import SandboxSpec


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

    @property
    def poolable(self) -> bool:
        return self.seed is None


def check_source(spec: SandboxSpec) -> None:
    if bool(spec.template) == (spec.snapshot is not None):
        raise InvalidRequest(
            "a sandbox starts from a template or from a snapshot, not from both or neither",
            remediation="give exactly one of template and snapshot",
        )


def check_network(engine: str) -> None:
    if engine == "runsc":
        raise Unsupported(
            "a gVisor sandbox has a network of its own that no cable of the host leads to",
            remediation="use the runtime crun where an open network is needed",
        )


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
