"""What the local provider can do, by the kind of runtime."""

from dataclasses import replace

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
    any_image=True,
    late_ports=True,
    metrics=True,
    disk_limit=True,
)
"""With crun or runc, on btrfs."""

GVISOR = replace(
    CONTAINER,
    isolation=Isolation.USER_KERNEL,
    sleeping_disk=False,
    egress=False,
    live_egress=False,
    checkpoint=True,
)
"""With runsc, where it can write memory down: its network is its own, and only what a relay inside
carries comes out of it. What is on a disk of its sandboxes is for its own kernel to read."""
