"""Where the local provider keeps things: what must last, and what a reboot may take."""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one installation. `data` lasts; `run` is emptied when the host restarts."""

    data: Path
    run: Path

    @classmethod
    def of(cls, data_dir: Path, run_root: Path = Path("/run/paddock")) -> "Layout":
        data = data_dir.absolute()
        return cls(data, run_root / hashlib.sha256(str(data).encode()).hexdigest()[:8])

    @property
    def cgroup_root(self) -> str:
        return f"paddock/{self.run.name}"

    @property
    def records(self) -> Path:
        """In the pool, beside what they speak of: where the pool goes, its records go."""
        return self.data / "pool" / "records"

    @property
    def sandboxes(self) -> Path:
        return self.records / "sandboxes"

    @property
    def snapshots(self) -> Path:
        return self.records / "snapshots"

    @property
    def keys(self) -> Path:
        return self.records / "keys"

    @property
    def owners(self) -> Path:
        return self.run / "owners"

    @property
    def runtime_state(self) -> Path:
        return self.run / "oci"

    def record(self, ref: str) -> Path:
        return self.sandboxes / ref / "state.json"

    @property
    def locks(self) -> Path:
        return self.run / "locks"

    def snapshot_record(self, snapshot: str) -> Path:
        return self.snapshots / f"{snapshot}.json"

    def bundle(self, ref: str) -> Path:
        return self.run / "bundles" / ref

    def socket(self, ref: str) -> Path:
        return self.run / "guests" / f"{ref}.sock"

    def ports(self, ref: str) -> Path:
        """Sockets that lead to its ports, where there is no other way."""
        return self.run / "ports" / ref

    def cgroup(self, ref: str) -> str:
        return f"{self.cgroup_root}/{ref}"

    def make(self) -> None:
        """Everything a sandbox's root may look into is searchable, nothing is listable by it."""
        for directory in (self.data, self.run):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o711)
        for directory in (
            self.owners,
            self.run / "guests",
            self.run / "ports",
            self.locks,
            ids_of(self),
            self.runtime_state,
        ):
            directory.mkdir(exist_ok=True)
            directory.chmod(0o700)
        (self.run / "bundles").mkdir(exist_ok=True)
        (self.run / "bundles").chmod(0o711)

    def forget_if_unused(self) -> None:
        """Remove the volatile directory when no process and no sandbox is left to use it."""
        if any(self.owners.iterdir()) or any((self.run / "bundles").iterdir()):
            return
        shutil.rmtree(self.run, ignore_errors=True)

    def make_records(self) -> None:
        """Once the pool is there."""
        for private in (self.records, self.sandboxes, self.snapshots, self.keys):
            private.mkdir(exist_ok=True)
            private.chmod(0o700)


def ids_of(layout: Layout) -> Path:
    """The directory of reserved ID ranges, shared by all installations on this host."""
    return layout.run.parent / "ids"


def archives_of(layout: Layout) -> Path:
    """Beside the pool: what is put away takes none of its room."""
    return layout.data / "archives"


def archive_of(layout: Layout, ref: str) -> Path:
    return archives_of(layout) / f"{ref}.tar.zst"


def image_of(pool: Path, snapshot: str) -> Path:
    """The memory of a snapshot, beside its volume: in there it would be copied each time."""
    return pool / "memories" / snapshot
