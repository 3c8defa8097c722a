"""What every storage driver promises, and how a volume comes to be in one step."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.storage.trees import remove_tree

PARTS = ("upper", "work", "guest")
"""What a volume holds: the overlay's two directories and the guest's own state."""

SHARED = "shared"
SHELVES = ("volumes", "snapshots", "templates", SHARED)
"""The pool's directories. Only root enters them: files below are set-user-ID, or have IDs that a
local user of the host can get with `newuidmap`. The launcher mounts for sandboxes what they see."""

_DRAFT = ".tmp-"


class Storage(Protocol):
    """Volumes on one pool. All methods block; any thread and any process may call them.

    Every method raises LimitExceeded when the disk or a quota is full and Broken when the pool
    does not do what a file system does.
    """

    name: str
    """btrfs, reflink or copy."""
    enforces_disk_limit: bool
    """Otherwise set_limit() does nothing and usage() has to be watched."""
    pool: Path
    notes: list[str]
    """Why nothing better was chosen and what an operator should know, for `paddock doctor`."""

    def create(self, volume: Path, owner: int) -> None:
        """An empty volume; `upper` belongs to owner:owner. Conflict when it exists."""
        ...

    def clone(self, source: Path, target: Path) -> None:
        """A copy of a volume that nobody writes to meanwhile, ready for an overlay of its own.

        Owners, modes, extended attributes, whiteouts, hard links and holes are kept. Conflict when
        the target exists, NotFound when the source does not. The limit is not copied.
        """
        ...

    def delete(self, volume: Path) -> None:
        """Whatever stands there goes. Absent is success."""
        ...

    def empty(self, volume: Path) -> None:
        """Remove the files in `upper`. Sandboxes keep it mounted after `delete()`."""
        ...

    def set_limit(self, volume: Path, limit_bytes: int | None) -> None:
        """The most that usage() may become; writing beyond it fails with EDQUOT inside."""
        ...

    def usage(self, volume: Path) -> int:
        """The bytes that count against the limit."""
        ...

    def sweep(self) -> list[Path]:
        """Remove what processes that no longer live left half made; returns what was removed."""
        ...

    def close(self, *, unmount: bool = False) -> None:
        """Let go. The pool stays mounted for others unless `unmount` and no volume is in use."""
        ...


@contextmanager
def drafted(target: Path, discard: Callable[[Path], None]) -> Iterator[Path]:
    """A hidden sibling to build in, which becomes the target by one rename or is discarded.

    A volume is never empty, so renaming onto one that another process made first is refused by
    the kernel and nothing needs to be locked.
    """
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.parent / draft_name()
        try:
            yield draft
            draft.rename(target)
        except BaseException:
            discard(draft)
            raise


def is_draft(volume: Path) -> bool:
    """Whether a sweep removes it once its process has ended."""
    return volume.name.startswith(_DRAFT)


def set_aside(volume: Path) -> Path:
    """Give it a draft's name, so that a kill while it is removed leaves no half of a volume.

    On a disk so full that not even that can be written, it is removed where it is.
    """
    if is_draft(volume):
        return volume
    try:
        return volume.rename(volume.with_name(draft_name()))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return volume


def make_shelves(pool: Path) -> None:
    pool.chmod(0o700)
    for shelf in SHELVES:
        directory = pool / shelf
        directory.mkdir(exist_ok=True)
        directory.chmod(0o700)


def make_parts(volume: Path, owner: int) -> None:
    for part in PARTS:
        (volume / part).mkdir(mode=0o755)
    for directory in (volume / "upper", volume / "guest", volume):
        os.chown(directory, owner, owner)
    (volume / "upper").chmod(0o755)
    volume.chmod(0o700)


def empty_upper(volume: Path) -> None:
    for entry in (volume / "upper").iterdir():
        remove_tree(entry)


def draft_name() -> str:
    """Says which process builds there: its pid, when it started, and in which run of the kernel."""
    pid = os.getpid()
    return f"{_DRAFT}{pid}-{_start_time(pid)}-{_boot()}-{os.urandom(4).hex()}"


def drafts_on_shelves(pool: Path) -> list[Path]:
    return [draft for shelf in SHELVES for draft in abandoned_drafts(pool / shelf)]


def abandoned_drafts(directory: Path) -> list[Path]:
    """What processes that no longer live were building there."""
    if not directory.is_dir():
        return []
    return [
        entry
        for entry in directory.iterdir()
        if entry.name.startswith(_DRAFT) and not _builder_lives(entry.name)
    ]


def _builder_lives(name: str) -> bool:
    try:
        pid, start, boot, _ = name.removeprefix(_DRAFT).split("-")
        return boot == _boot() and _start_time(int(pid)) == start
    except ValueError:
        return True  # not a name of ours, so not ours to remove
    except OSError:
        return False


def _start_time(pid: int) -> str:
    # The name in parentheses may hold spaces and parentheses itself.
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return stat.rpartition(")")[2].split()[19]


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
