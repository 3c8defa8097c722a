"""What an operator may set for the local provider."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """Settings under `[local]`."""

    data_dir: Path = Path("/var/lib/paddock")
    run_root: Path = Path("/run/paddock")
    runtime: Literal["", "crun", "runc", "runsc"] = ""
    """Empty takes the best that is installed."""
    storage: Literal["auto", "btrfs", "reflink", "copy"] = "auto"
    pool_size_mib: int | None = None
    """Of the btrfs image made where the host has no btrfs; None takes most of the free disk."""
    user_namespace: Literal["auto", "off"] = "auto"
    first_id: int = 100_000
    """Where the owners 0 to 65535 of sandboxes' files begin on disk."""
    init: str = ""
    """A static program that only reaps; empty looks for catatonit."""
    open_subnet: str = ""
    """For sandboxes with an open network; empty takes one that is free on this host."""
    fast_cgroups: bool = True
    """Ask the kernel to favour moving processes between control groups (see the docs)."""
    template_cache: Path | None = None
    """Where built templates are kept as archives, for other data directories to take."""
    image_mib: int = 32_768
    """The most that an unpacked container image may take."""
    warm: dict[str, int] = field(default_factory=dict)
    """How many sandboxes of which template wait ready."""
