"""What an operator may set for the Docker provider."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paddock.domain.image_reference import DOCKER_HUB

RUN_ROOT = Path("/run/paddock")


@dataclass(frozen=True, slots=True)
class DockerConfig:
    """Settings under `[docker]`. Podman's socket works too."""

    host: str = ""
    """`unix:///PATH` or `tcp://HOST:PORT`; empty means DOCKER_HOST, or else where Docker and Podman
    have their sockets."""
    guest: Literal["auto", "joined", "packed"] = "auto"
    """How the guest gets in; auto joins where this is root on the engine's own host."""
    installation: str = "paddock"
    """Whose sandboxes these are: control planes with the same name on one engine share them."""
    run_root: Path = RUN_ROOT
    """For sockets and locks; an unprivileged user gets a place of their own instead."""
    runtime: str = ""
    """One that the engine knows, such as runsc; empty takes the engine's default."""
    init: str = ""
    """A static program that only reaps, for joined guests; empty looks for catatonit."""
    registries: tuple[str, ...] = (DOCKER_HUB,)
    """Registries that the engine may pull an image from if a sandbox names it. List only trusted
    ones, because the engine follows their redirects. Templates may use any registry."""
    nofile: int = 65_536
    """Most files a process may have open."""
    tmp_mib: int = 0
    """Size of a /tmp in memory; 0 leaves it on the sandbox's disk, where large builds fit."""
    open_subnet: str = ""
    """Of the open network; empty lets the engine choose."""
    disk_watch_s: float = 30.0
    """How often disks are measured where the engine cannot limit them."""
