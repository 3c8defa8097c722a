"""The reference provider with archives: the directory of a stopped sandbox as a tar file."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from paddock.domain.errors import Conflict
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import Capabilities, Observation, Ref
from paddock.testing.records import Record, locked
from paddock.testing.reference import ReferenceProvider

_PACK = ("tar", "--create", "--gzip", "--sparse", "--xattrs", "--xattrs-include=*")
_UNPACK = ("tar", "--extract", "--gzip", "--same-permissions", "--xattrs", "--xattrs-include=*")


class ArchivingProvider(ReferenceProvider):
    """Packs with tar, which keeps what a file system knows of a file."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, archive=True)

    async def stop(self, ref: Ref, reason: Reason = Reason.USER) -> Observation:
        self._check_on_disk(ref)
        return await super().stop(ref, reason)

    async def archive(self, ref: Ref) -> Observation:
        async with locked(self._place / "locks", self._record(ref).key):
            record = self._record(ref)
            if record.state is not SandboxState.ARCHIVED:
                self._check_stopped(record)
                self._pack(self._disk(record.id), self._packed(record.id))
                record = self._records.write(replace(record, state=SandboxState.ARCHIVED))
                shutil.rmtree(self._disk(record.id))
            return self._observation(record)

    async def start(self, ref: Ref) -> Observation:
        async with locked(self._place / "locks", self._record(ref).key):
            record = self._record(ref)
            if record.state is SandboxState.ARCHIVED:
                self._unpack(self._packed(record.id), self._disk(record.id))
                self._records.write(replace(record, state=SandboxState.STOPPED))
                self._packed(record.id).unlink()
        return await super().start(ref)

    def _check_stopped(self, record: Record) -> None:
        if (state := self._observation(record).state) is not SandboxState.STOPPED:
            raise Conflict(f"sandbox {record.id} is {state}", remediation="stop it first")

    def _check_on_disk(self, ref: Ref) -> None:
        if self._record(ref).state is SandboxState.ARCHIVED:
            raise Conflict(f"sandbox {ref.id} is archived", remediation="start it first")

    def _packed(self, identifier: str) -> Path:
        return self._records.home(identifier) / "packed" / "home.tar.gz"

    def _pack(self, disk: Path, file: Path) -> None:
        file.parent.mkdir(exist_ok=True)
        subprocess.run([*_PACK, "--file", str(file), "--directory", str(disk), "."], check=True)

    def _unpack(self, file: Path, disk: Path) -> None:
        disk.mkdir(exist_ok=True)
        subprocess.run([*_UNPACK, "--file", str(file), "--directory", str(disk)], check=True)
