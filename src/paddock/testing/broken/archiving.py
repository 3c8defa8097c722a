"""Providers that lose what they archive, keep what they should give back, or do it unasked."""

import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

from paddock.domain.errors import Conflict
from paddock.domain.guest import GuestAddress
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import Endpoint, Observation, Ref
from paddock.testing.broken.defect import Defect, claiming
from paddock.testing.records import Record
from paddock.testing.reference import ReferenceProvider
from paddock.testing.simulated import SimulatedProvider

WHOLE = "an_archived_sandbox_starts_again_with_everything_on_its_disk"
REPEATED = "archiving_can_be_repeated_and_is_for_what_is_stopped"
NOTHING_ELSE = "an_archived_sandbox_takes_nothing_but_start_and_destroy"


class UnpacksNothing(SimulatedProvider):
    """Starts an archived sandbox with an empty disk."""

    def _unpack(self, file: Path, disk: Path) -> None:
        disk.mkdir(exist_ok=True)


class PlainCopies(SimulatedProvider):
    """Packs what is in the files, and little of what is about them."""

    def _pack(self, disk: Path, file: Path) -> None:
        file.parent.mkdir(exist_ok=True)
        words = ("tar", "--create", "--gzip", "--sparse", "--hard-dereference", "--mode=a+rwX")
        subprocess.run([*words, "--file", str(file), "--directory", str(disk), "."], check=True)


class WithoutAttributes(SimulatedProvider):
    """Forgets the extended attributes."""

    def _pack(self, disk: Path, file: Path) -> None:
        file.parent.mkdir(exist_ok=True)
        words = ("tar", "--create", "--gzip", "--sparse", "--format=posix")
        subprocess.run([*words, "--file", str(file), "--directory", str(disk), "."], check=True)


class KeepsBoth(SimulatedProvider):
    """Gives no room back."""

    async def archive(self, ref: Ref) -> Observation:
        aside = self._records.home(ref.id) / "packed" / "home"
        if self._disk(ref.id).exists():
            shutil.copytree(self._disk(ref.id), aside, symlinks=True)
        return await super().archive(ref)


class ForgetsArchives(SimulatedProvider):
    """Has archives as long as itself."""

    async def aclose(self) -> None:
        for record in self._records.all():
            if record.state is SandboxState.ARCHIVED:
                await self.destroy(Ref(self.name, record.id))


class HidesTheArchived(SimulatedProvider):
    """Lists only what has a disk."""

    async def find(self, labels: Mapping[str, str]) -> AsyncIterator[Observation]:
        async for seen in super().find(labels):
            if seen.state is not SandboxState.ARCHIVED:
                yield seen


class StopsFirst(SimulatedProvider):
    """Ends what runs, so that it can be archived."""

    def _check_stopped(self, record: Record) -> None:
        pass

    async def archive(self, ref: Ref) -> Observation:
        if self._record(ref).state is not SandboxState.ARCHIVED:
            await self.stop(ref)
        return await super().archive(ref)


class ArchivesOnce(SimulatedProvider):
    """Refuses to archive what is archived."""

    async def archive(self, ref: Ref) -> Observation:
        if self._record(ref).state is SandboxState.ARCHIVED:
            raise Conflict(f"{ref.id} is archived already")
        return await super().archive(ref)


class AddressOfTheArchived(SimulatedProvider):
    """Gives the address of a guest that is not there."""

    async def guest(self, ref: Ref) -> GuestAddress:
        return self._address(self._record(ref))


class PortsOfTheArchived(SimulatedProvider):
    """Leads to ports of a sandbox without a machine."""

    async def endpoint(self, ref: Ref, port: int) -> Endpoint:
        return Endpoint(port, url=f"http://127.0.0.1:{port}")


class CopiesOfTheArchived(SimulatedProvider):
    """Takes snapshots, makes forks and ends processes of what is packed up."""

    def _check_on_disk(self, ref: Ref) -> None:
        self._disk(ref.id).mkdir(exist_ok=True)


class KeepsTheArchived(SimulatedProvider):
    """Does not destroy what is packed up."""

    async def destroy(self, ref: Ref) -> None:
        record = self._records.read(ref.id)
        if record is None or record.state is not SandboxState.ARCHIVED:
            await super().destroy(ref)


class RefusesTooLate(ReferenceProvider):
    """Begins with what it cannot do."""

    async def archive(self, ref: Ref) -> Observation:
        record = self._record(ref)
        if record.state is SandboxState.STOPPED:
            self._records.write(replace(record, reason=Reason.IDLE))
        await self.stop(ref)
        return await super().archive(ref)


DEFECTS = (
    Defect("unpacks nothing", UnpacksNothing, (WHOLE, REPEATED)),
    Defect("packs plain copies", PlainCopies, (WHOLE,)),
    Defect("forgets extended attributes", WithoutAttributes, (WHOLE,)),
    Defect("gives no room back", KeepsBoth, (WHOLE,)),
    Defect("has archives as long as itself", ForgetsArchives, (WHOLE,)),
    Defect("hides what is archived", HidesTheArchived, (WHOLE,)),
    Defect("stops what it archives", StopsFirst, (REPEATED,)),
    Defect("refuses to archive twice", ArchivesOnce, (REPEATED,)),
    Defect("gives the address of an archived guest", AddressOfTheArchived, (NOTHING_ELSE,)),
    Defect("leads to ports of what is archived", PortsOfTheArchived, (NOTHING_ELSE,)),
    Defect("copies what is archived", CopiesOfTheArchived, (NOTHING_ELSE,)),
    Defect("does not destroy what is archived", KeepsTheArchived, (NOTHING_ELSE,)),
    Defect("refuses too late", RefusesTooLate, (WHOLE, REPEATED, NOTHING_ELSE)),
    Defect(
        "archives without claiming it",
        claiming(SimulatedProvider, archive=False),
        (WHOLE, REPEATED, NOTHING_ELSE),
    ),
    Defect(
        "claims archives, but does not stop",
        claiming(SimulatedProvider, stop=False),
        ("its_capabilities_are_plain_and_coherent",),
    ),
)
