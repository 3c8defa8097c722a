"""The reference provider with disks that can be looked at while their sandboxes sleep."""

import asyncio
import os
from dataclasses import replace

from paddock.domain.errors import Broken, Conflict
from paddock.domain.guest import GuestAddress
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import Capabilities, Observation, OpenDisk, Ref
from paddock.testing.archiving import ArchivingProvider
from paddock.testing.processes import Family
from paddock.testing.records import MARKER, Record
from paddock.testing.reference import introduced, launch

# A mount namespace in which the disk cannot be written; exec, so that the guest keeps the pid.
_READ_ONLY = (
    *("unshare", "--mount", "sh", "-c"),
    'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"',
)
_ASLEEP = (SandboxState.STOPPED, SandboxState.PAUSED)


class ShowingProvider(ArchivingProvider):
    """A guest of its own beside the disk, and a mount that keeps it from writing there."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, sleeping_disk=os.geteuid() == 0)

    async def open_disk(self, ref: Ref) -> OpenDisk:
        if os.geteuid() != 0:
            self._cannot("open_disk", "sleeping_disk")
        record = self._record(ref)
        if (state := self._observation(record).state) not in _ASLEEP:
            raise Conflict(f"sandbox {ref.id} is {state}", remediation="start it, or ask its guest")
        await self._hide(record)
        return OpenDisk(await self._show(record), lambda: self._hide(record))

    async def start(self, ref: Ref) -> Observation:
        await self._hide(self._record(ref))
        return await super().start(ref)

    async def archive(self, ref: Ref) -> Observation:
        await self._hide(self._record(ref))
        return await super().archive(ref)

    async def _remove(self, record: Record) -> None:
        await self._hide(record)
        await super()._remove(record)

    async def _show(self, record: Record) -> GuestAddress:
        view = replace(record, id=f"{record.id}-disk")
        home = self._records.home(record.id)
        words = list(self._argv(record))
        words[words.index("--socket") + 1] = str(self._socket(view.id))
        words[words.index("--state-dir") + 1] = str(home / "looking")
        words[words.index("--sandbox-id") + 1] = view.id
        (home / "looking").mkdir(exist_ok=True)
        argv = (*self._fence(record), *words)
        guest = await launch(argv, home / "looking.log", {MARKER: view.id})
        address = self._address(view)
        while not await introduced(address, self._env(record)):
            if not guest.lives:
                raise Broken(f"the guest that shows {record.id} ended at once")
            await asyncio.sleep(0.01)
        return address

    def _fence(self, record: Record) -> tuple[str, ...]:
        """What the guest is started through, so that it can change nothing."""
        return (*_READ_ONLY, str(self._disk(record.id)))

    async def _hide(self, record: Record) -> None:
        await Family(0, 0, f"{MARKER}={record.id}-disk").end()
        self._socket(f"{record.id}-disk").unlink(missing_ok=True)
