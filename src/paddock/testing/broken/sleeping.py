"""Providers that wake what they show, show something else, or let it be changed."""

from paddock.domain.errors import Conflict
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import Observation, OpenDisk, Ref
from paddock.testing.archiving import ArchivingProvider
from paddock.testing.broken.defect import Defect, claiming
from paddock.testing.records import Record
from paddock.testing.simulated import SimulatedProvider

READ = "the_disk_of_a_sleeping_sandbox_is_read_and_nothing_wakes"
FREE = "a_look_at_a_disk_holds_nobody_up"


class WakesToShow(SimulatedProvider):
    """Starts what it is to show."""

    async def open_disk(self, ref: Ref) -> OpenDisk:
        record = self._record(ref)
        if record.state is SandboxState.RUNNING:
            raise Conflict(f"{ref.id} runs", remediation="ask its guest")
        await (self.resume if record.state is SandboxState.PAUSED else self.start)(ref)
        return OpenDisk(await self.guest(ref), self.aclose)


class LetsWrite(SimulatedProvider):
    """Shows the disk as it is, for everyone to change."""

    def _fence(self, record: Record) -> tuple[str, ...]:
        return ()


class GoesOnShowing(SimulatedProvider):
    """Does not end a look when the sandbox is started."""

    async def start(self, ref: Ref) -> Observation:
        return await ArchivingProvider.start(self, ref)


class ShowsWhatRuns(SimulatedProvider):
    """Shows disks of sandboxes that are not asleep."""

    async def open_disk(self, ref: Ref) -> OpenDisk:
        record = self._record(ref)
        return OpenDisk(await self._show(record), lambda: self._hide(record))


DEFECTS = (
    Defect("wakes what it shows", WakesToShow, (READ, FREE)),
    Defect("lets what it shows be changed", LetsWrite, (READ,)),
    Defect("goes on showing", GoesOnShowing, (FREE,)),
    Defect("shows what runs", ShowsWhatRuns, (FREE,)),
    Defect(
        "shows disks without claiming it",
        claiming(SimulatedProvider, sleeping_disk=False),
        (READ, FREE),
    ),
)
