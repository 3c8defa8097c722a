"""What the reference provider remembers: a file per sandbox, and locks that hold everywhere."""

import asyncio
import fcntl
import hashlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from paddock.domain.reason import Reason
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.volume import VolumeMount
from paddock.ports.provider import SandboxSpec
from paddock.testing.processes import Family

MARKER = "PADDOCK_SANDBOX_ID"

_FILE = "record.json"


@dataclass(frozen=True, slots=True)
class Record:
    """A sandbox as it is on disk."""

    id: str
    key: str
    digest: str
    """Of the spec, to tell a repeated creation from a conflicting one."""
    template: str
    labels: Mapping[str, str]
    env: Mapping[str, str]
    resources: Resources
    ports: tuple[int, ...]
    egress: str
    created_at: float
    state: SandboxState = SandboxState.CREATING
    reason: Reason | None = None
    pid: int = 0
    pid_start: int = 0
    until: float | None = None
    volumes: tuple[VolumeMount, ...] = ()

    @property
    def family(self) -> Family:
        """By the variable that the guest puts into the environment of everything it starts."""
        return Family(self.pid, self.pid_start, f"{MARKER}={self.id}")


def digest(spec: SandboxSpec, source: str) -> str:
    text = json.dumps({**asdict(spec), "source": source, "image_mib": None}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Records:
    """The sandboxes of one directory. Nothing is held in memory, so that instances agree."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def home(self, identifier: str) -> Path:
        return self._directory / identifier

    def read(self, identifier: str) -> Record | None:
        try:
            fields = json.loads((self.home(identifier) / _FILE).read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        fields["resources"] = Resources(**fields["resources"])
        fields["ports"] = tuple(fields["ports"])
        fields["volumes"] = tuple(VolumeMount(**mount) for mount in fields["volumes"])
        fields["state"] = SandboxState(fields["state"])
        fields["reason"] = Reason(fields["reason"]) if fields["reason"] else None
        return Record(**fields)

    def write(self, record: Record) -> Record:
        file = self.home(record.id) / _FILE
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(record)))
        part.replace(file)
        return record

    def all(self) -> list[Record]:
        names = sorted(path.name for path in self._directory.iterdir())
        return [record for name in names if (record := self.read(name))]

    def of_key(self, key: str) -> Record | None:
        return next((record for record in self.all() if record.key == key), None)


@asynccontextmanager
async def locked(directory: Path, name: str) -> AsyncIterator[None]:
    """Alone under this name, among all instances in all processes."""
    file = directory / hashlib.sha256(name.encode()).hexdigest()[:32]
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _try_lock(descriptor):  # noqa: ASYNC110 - the holder may be another process
            await asyncio.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
