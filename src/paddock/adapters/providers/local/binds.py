"""Bind mounts of a bundle: the launcher creates them, and the mount table is checked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddock.adapters.providers.host.mounts import Bind
from paddock.adapters.providers.local.bundle import GUEST_STATE
from paddock.adapters.providers.local.storage.mounts import Mount, mounts
from paddock.domain.errors import Broken

_OF_THE_KERNEL = frozenset("cgroup cgroup2 devpts devtmpfs mqueue overlay proc sysfs tmpfs".split())
"""File systems that belong to the sandbox or contain no files of the host's disks."""


def relocate(
    config: dict[str, Any], place: Path, *, read_only_only: bool, stored: Sequence[Path] = ()
) -> tuple[dict[str, Any], list[Bind]]:
    """Return the bundle with its bind mounts taken from below `place`, and what to mount there.

    The host's kernel then enforces their attributes, whatever the runtime does. Files below one of
    the directories `stored` have the owners that are on disk.
    """
    relocated, binds = [], []
    for number, mount in enumerate(config["mounts"]):
        options = mount["options"]
        if mount["type"] == "bind" and ("ro" in options or not read_only_only):
            source = Path(mount["source"])
            target = place / str(number) / source.name
            _make_like(source, target)
            binds.append(
                Bind(
                    str(source),
                    str(target),
                    read_only="ro" in options,
                    noexec="noexec" in options,
                    stored=any(source.is_relative_to(each) for each in stored),
                )
            )
            mount = {**mount, "source": str(target)}
        relocated.append(mount)
    return {**config, "mounts": relocated}, binds


def _make_like(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()


def check_attributes(ref: str, pid: int) -> None:
    """Raise Broken unless every mount of host files in a sandbox has `nosuid` and `nodev`, and that
    of the guest's state also `noexec`."""
    for mount in mounts(str(pid)):
        if mount.kind not in _OF_THE_KERNEL and (missing := _missing(mount)):
            raise Broken(
                f"{mount.point} of sandbox {ref} is mounted without {', '.join(missing)}",
                remediation="the OCI runtime changed the mount; choose another with local.runtime",
            )


def _missing(mount: Mount) -> list[str]:
    wanted = ["nosuid", "nodev", *(["noexec"] if mount.point == GUEST_STATE else [])]
    return [each for each in wanted if each not in mount.attributes]
