"""What a guest is told when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GuestConfig:
    """Everything that differs from one guest to the next."""

    sandbox_id: str = ""
    token: str = field(default="", repr=False)
    """Asked of every connection that does not come over a unix socket. Empty refuses them all."""
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = "user"
    workdir: str = ""
    """Empty means the user's home."""
    state_dir: str = "/var/lib/paddock"
    accounting: Mapping[str, int] = field(default_factory=dict)
    """Open files of the sandbox's cgroup by their name there: `cpuacct.usage`, `memory.events`.

    `oom_score_adj`, where given, is the guest's own, opened for writing: a joined guest may not be
    allowed to open it by itself.
    """
    kill_grace: float = 5.0
    """Seconds between SIGTERM and SIGKILL when a deadline has passed."""
    packed: bool = False
    """Started as a zip file: modules are loaded when they are first needed."""
