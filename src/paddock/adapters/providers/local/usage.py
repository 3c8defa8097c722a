"""What a sandbox has used, as its control group and its disk tell it."""

from paddock.adapters.providers.host.cgroups import Cgroup
from paddock.ports.provider import Usage


def measured(cgroup: Cgroup, disk_bytes: int | None) -> Usage:
    return Usage(
        cpu_seconds=cgroup.cpu_seconds(),
        memory_bytes=cgroup.memory_bytes(),
        memory_peak_bytes=cgroup.memory_peak_bytes(),
        disk_bytes=disk_bytes,
        pids=cgroup.pids_count(),
    )
