"""What the local provider can do, by the kind of runtime."""

from dataclasses import dataclass, replace

from paddock.adapters.providers.host import nftables
from paddock.ports.provider import Capabilities, Isolation, PauseKind

CONTAINER = Capabilities(
    isolation=Isolation.CONTAINER,
    pause=PauseKind.MEMORY,
    stop=True,
    archive=True,
    sleeping_disk=True,
    snapshot=True,
    snapshot_ignore=True,
    fork=True,
    egress=True,
    live_egress=True,
    allowlist=True,
    any_image=True,
    late_ports=True,
    metrics=True,
    disk_limit=True,
    volumes=True,
    agents=True,
)
"""With crun or runc, on btrfs."""

GVISOR = replace(
    CONTAINER,
    isolation=Isolation.USER_KERNEL,
    sleeping_disk=False,
    egress=False,
    live_egress=False,
    allowlist=False,
    checkpoint=True,
)
"""With runsc, where it can write memory down: its network is its own, and only what a relay inside
carries comes out of it. What is on a disk of its sandboxes is for its own kernel to read."""


@dataclass(frozen=True, slots=True)
class Found:
    """What differs from host to host."""

    disk_limit: bool
    checkpoint: bool
    agents: bool


def abilities_of(runtime: str, found: Found, *, archive: bool) -> Capabilities:
    """Those of a runtime on this host, as far as they were found out."""
    able = GVISOR if runtime == "runsc" else CONTAINER
    return replace(
        able,
        allowlist=able.allowlist and nftables.available(),
        disk_limit=found.disk_limit,
        archive=archive,
        checkpoint=found.checkpoint,
        agents=found.agents,
    )
