"""Volumes: directories of a team that outlive its sandboxes, and that several of them share."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from paddock.domain.errors import Conflict, InvalidRequest, NotFound

VOLUME_PREFIX = "vol"
LEAST_MIB = 16
DEFAULT_MIB = 10240
"""As much as a sandbox's own disk, where nothing is said and it can be kept to."""
MOST_MOUNTS = 16
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LOOKS_LIKE_ID = re.compile(rf"{VOLUME_PREFIX}_.*")
_LONGEST_PATH = 1024
_OURS = ("/dev", "/proc", "/run", "/sys")
"""Where a machine has what it runs on: nothing of a user's belongs there."""


class VolumeState(StrEnum):
    """`creating` and `deleting` do not last: whoever finds them after a restart ends it."""

    CREATING = "creating"
    READY = "ready"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class VolumeRecord:
    """A volume and whose it is."""

    id: str
    team_id: str
    name: str
    provider: str
    state: VolumeState
    created_at: float
    size_mib: int | None = None
    """The most that it holds; None where nothing keeps it to a size."""


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """A volume in a sandbox: which, and where it is seen."""

    volume: str
    """Its id."""
    path: str
    name: str = ""
    """What it was called then; for people."""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class MountWish:
    """The same as somebody asks for it: a volume by its name or its id."""

    volume: str
    path: str
    read_only: bool = False


def check_volume_name(name: str) -> str:
    """One that can stand in a path of the API and is never taken for an id."""
    if _NAME.fullmatch(name) and not _LOOKS_LIKE_ID.fullmatch(name):
        return name
    raise InvalidRequest(
        f"{name[:80]!r} is no name of a volume",
        remediation="use 1 to 63 letters, digits, '-', '_' and '.', with a letter or digit at both "
        f"ends, that do not begin with `{VOLUME_PREFIX}_`",
    )


def check_size(size_mib: int | None) -> int | None:
    if size_mib is None or size_mib >= LEAST_MIB:
        return size_mib
    raise InvalidRequest(
        f"a volume of {size_mib} MiB is too small", remediation=f"ask for {LEAST_MIB} MiB or more"
    )


def check_mount_paths(paths: Sequence[str]) -> None:
    """Each is absolute and plain, none is the machine's own, and none lies in another."""
    if len(paths) > MOST_MOUNTS:
        raise InvalidRequest(
            f"{len(paths)} volumes were asked for", remediation=f"mount at most {MOST_MOUNTS}"
        )
    for path in paths:
        _check_mount_path(path)
    for path in paths:
        others = list(paths)
        others.remove(path)
        if any(_is_in(path, other) for other in others):
            raise InvalidRequest(
                f"the mount path {path[:200]!r} lies in another, or is given twice",
                remediation="give every volume a place of its own",
            )


def _check_mount_path(path: str) -> None:
    names = path[1:].split("/")
    is_plain = path.isprintable() and path.startswith("/") and not {"", ".", ".."} & set(names)
    if path != "/" and not (is_plain and len(path) <= _LONGEST_PATH):
        raise InvalidRequest(
            f"{path[:200]!r} is no path to mount a volume at",
            remediation="use an absolute path without `.`, `..` and a `/` at its end",
        )
    if path == "/" or any(_is_in(path, own) for own in _OURS):
        raise InvalidRequest(
            f"{path[:200]!r} is the machine's own",
            remediation="mount it elsewhere, as at /mnt/data",
        )


def _is_in(path: str, other: str) -> bool:
    return f"{path}/".startswith(f"{other}/")


def usable(volume: VolumeRecord | None, name: str) -> VolumeRecord:
    """The one that was found by a name, if it can be used."""
    if volume is None or volume.state is VolumeState.DELETING:
        raise NotFound(
            f"there is no volume {name[:80]}",
            remediation="`paddock volume ls` shows those there are",
        )
    if volume.state is VolumeState.CREATING:
        raise Conflict(f"volume {volume.name} is being made", remediation="try again in a moment")
    return volume
