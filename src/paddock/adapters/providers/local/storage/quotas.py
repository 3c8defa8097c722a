"""How much each subvolume uses, and the most it may: btrfs's simple or classic quotas."""

from contextlib import suppress
from pathlib import Path

from paddock.adapters.providers.local.storage import ioctls

_LEVEL = 100
"""Of our groups. People number theirs from 1, and a file system may be shared with them."""

_SIMPLE, _CLASSIC, _OFF = "squota", "qgroup", ""


class Quotas:
    """The quotas of one file system.

    With simple quotas a volume's limit stands on a group of its own. The kernel puts subvolumes
    made inside a volume into the same group, so that root in a sandbox, who may make some in a
    directory that is mounted into it, cannot write beyond the limit there.
    """

    def __init__(self, pool: Path, *, ours: bool) -> None:
        self._pool = pool
        self._ours = ours
        with ioctls.opened(pool) as directory:
            uuid = ioctls.filesystem_uuid(directory)
        self._numbers = Path(f"/sys/fs/btrfs/{uuid}/qgroups")
        self._mode = self._read_mode()

    @property
    def enforced(self) -> bool:
        return self._mode != _OFF

    def enable(self) -> str:
        """Switch them on where they are off; returns why that did not work, or nothing.

        Never for the host's own: older kernels cannot mount a file system with simple quotas.
        """
        refused = ""
        for kind in (ioctls.SIMPLE_QUOTA, ioctls.CLASSIC_QUOTA):
            if self.enforced:
                return ""
            try:
                with ioctls.opened(self._pool) as filesystem:
                    ioctls.enable_quota(filesystem, kind)
            except OSError as error:
                refused = error.strerror or str(error)
            self._mode = self._read_mode()
        return (
            "" if self.enforced else f"the kernel refused quotas ({refused or 'no reason given'})"
        )

    def track(self, filesystem: int, subvolume: int) -> None:
        """Count the subvolume, and what will be nested in it, from now on."""
        if self._mode == _SIMPLE:
            ioctls.create_qgroup(filesystem, _group(subvolume))
            ioctls.assign_qgroup(filesystem, subvolume, _group(subvolume))

    def limit(self, filesystem: int, subvolume: int, limit_bytes: int | None) -> None:
        most = ioctls.NO_LIMIT if limit_bytes is None else limit_bytes
        if self._mode == _SIMPLE:
            ioctls.limit_qgroup(filesystem, _group(subvolume), most)
        elif self._mode == _CLASSIC:
            ioctls.limit_qgroup(filesystem, subvolume, most)

    def usage(self, subvolume: int) -> int | None:
        """None when quotas are off or the kernel does not show them.

        What is written but not yet committed is only reserved, and counts as well.
        """
        if self._mode == _OFF:
            return None
        name = f"{_LEVEL}_{subvolume}" if self._mode == _SIMPLE else f"0_{subvolume}"
        try:
            numbers = [self._number(name, which) for which in ("referenced", "rsv_data")]
        except FileNotFoundError:
            return None
        return sum(numbers)

    def forget(self, filesystem: int, subvolume: int, nested: list[int]) -> None:
        """The groups of a destroyed subvolume; what still counts is left to prune()."""
        if self._mode != _SIMPLE:
            return
        for member in (subvolume, *nested):
            with suppress(OSError):
                ioctls.unassign_qgroup(filesystem, member, _group(subvolume))
        with suppress(OSError):
            ioctls.remove_qgroup(filesystem, _group(subvolume))

    def prune(self) -> None:
        """Numbers of subvolumes that are gone, which the kernel keeps while a clone shares blocks.

        Nobody removes them afterwards, and each costs the kernel memory.
        """
        if self._mode != _SIMPLE or not self._ours or not self._numbers.is_dir():
            return
        with ioctls.opened(self._pool) as filesystem:
            for level, subvolume in sorted(self._known()):  # members before their groups
                if ioctls.subvolume_exists(filesystem, subvolume):
                    continue
                with suppress(OSError):  # EBUSY: its blocks are still shared
                    ioctls.remove_qgroup(filesystem, level << 48 | subvolume)

    def highest_stale_id(self) -> int:
        """Return the highest id that has a group, if its subvolume is gone; otherwise 0.

        Only groups of subvolumes and of Paddock count. Other groups may have any number.
        """
        if self._mode != _SIMPLE or not self._numbers.is_dir():
            return 0
        ids = [subvolume for level, subvolume in self._known() if level in (0, _LEVEL)]
        highest = max(ids, default=0)
        with ioctls.opened(self._pool) as filesystem:
            return 0 if ioctls.subvolume_exists(filesystem, highest) else highest

    def _known(self) -> list[tuple[int, int]]:
        names = [entry.name.split("_") for entry in self._numbers.iterdir()]
        pairs = [(int(n[0]), int(n[1])) for n in names if len(n) == 2 and n[0].isdecimal()]
        return [pair for pair in pairs if pair[1] >= ioctls.FIRST_FREE_OBJECTID]

    def _number(self, name: str, which: str) -> int:
        return int((self._numbers / name / which).read_text())

    def _read_mode(self) -> str:
        try:
            if (self._numbers / "enabled").read_text().strip() != "1":
                return _OFF
            return (self._numbers / "mode").read_text().strip()
        except FileNotFoundError:
            return _CLASSIC if self._numbers.is_dir() else _OFF


def _group(subvolume: int) -> int:
    return _LEVEL << 48 | subvolume
