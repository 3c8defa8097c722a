"""What a sandbox has used and uses, asked of whoever can say."""

from typing import Any

from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.joined import control_group
from paddock.adapters.providers.docker.records import Container
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import Usage


async def measure(engine: Engine, container: Container, *, near: bool) -> Usage:
    """From the kernel where the container is on this host: exact, at once, and also on hosts whose
    engine has no figures; otherwise from the engine."""
    what = f"measure container {container.name}"
    sized = await engine.get(f"containers/{container.id}/json", what, size=1)
    disk = sized.get("SizeRw")
    if container.state not in (SandboxState.RUNNING, SandboxState.PAUSED):
        return Usage(disk_bytes=disk)
    if near:
        group = control_group(container)
        return Usage(
            cpu_seconds=group.cpu_seconds(),
            memory_bytes=group.memory_bytes(),
            memory_peak_bytes=group.memory_peak_bytes(),
            disk_bytes=disk,
            pids=group.pids_count(),
        )
    query = {"stream": "false", "one-shot": "true"}
    said: dict[str, Any] = await engine.call(
        "GET", f"containers/{container.id}/stats", what, query=query
    )
    memory = said.get("memory_stats") or {}
    spent = ((said.get("cpu_stats") or {}).get("cpu_usage") or {}).get("total_usage")
    return Usage(
        cpu_seconds=spent / 1e9 if spent and memory else None,
        memory_bytes=memory.get("usage"),
        memory_peak_bytes=memory.get("max_usage"),
        disk_bytes=disk,
        pids=(said.get("pids_stats") or {}).get("current"),
    )
