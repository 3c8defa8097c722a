"""Providers that lose memory, mix it up, or keep it without having said so."""

import asyncio
import json
import shutil
from pathlib import Path

from paddock.domain.snapshot import Snapshot
from paddock.ports.provider import Ref
from paddock.testing.broken.defect import Defect, claiming
from paddock.testing.checkpointing import CheckpointingProvider
from paddock.testing.conformance.subject import Terms
from paddock.testing.records import Record
from paddock.testing.reference import TEMPLATE, ReferenceProvider
from paddock.testing.simulated import IMAGE, SimulatedProvider

GOES_ON = "a_snapshot_with_memory_goes_on_where_it_was"
KEYS = "a_key_stands_for_a_snapshot_with_or_without_memory"
HASTY = Terms(TEMPLATE, image=IMAGE, patience=0.1)
"""For defects that show because a program does not continue: a short wait is enough."""


class BeginsAnew(CheckpointingProvider):
    """Starts the programs that ran, with nothing in their memory."""

    async def _gone_on(self, record: Record, images: Path) -> None:
        for file in images.iterdir():
            image = json.loads(file.read_text())
            file.write_text(json.dumps({**image, "line": 2, "modules": {}, "values": {}}))
        await super()._gone_on(record, images)


class MemoryBeforeDisk(CheckpointingProvider):
    """Lets the programs go on between the copy of memory and that of the disk."""

    async def _capture(self, record: Record, target: Path, *, memory: bool) -> None:
        await super()._capture(record, target, memory=memory)
        if memory:
            shutil.rmtree(target / "home")
            await asyncio.sleep(0.1)
            await super()._capture(record, target, memory=False)


class ForgetsAtTheEnd(CheckpointingProvider):
    """Has what it calls a snapshot with memory as long as itself."""

    async def aclose(self) -> None:
        for images in self._shots.glob("*/memory"):
            shutil.rmtree(images)
            images.mkdir()


class MemoryByTheWay(CheckpointingProvider):
    """Gives whatever is there under the key."""

    def _check_same(self, known: Snapshot, ref: Ref, **wish: object) -> None:
        pass


class MemoryOfTheStopped(CheckpointingProvider):
    """Has a snapshot with memory of what has none."""

    def _running(self, ref: Ref) -> Record:
        return self._record(ref)


class IgnoresTheWish(SimulatedProvider):
    """Takes a snapshot without memory where one with memory was asked for."""

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        return await super().snapshot(ref, key, ignore=ignore)


class LooksAtTheKeyFirst(SimulatedProvider):
    """Finds a snapshot under the key before it thinks of what it cannot do."""

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        for known in self._read_shots():
            if known.key == key:
                return known
        return await super().snapshot(ref, key, memory=memory, ignore=ignore)


class LosesItToARefusal(SimulatedProvider):
    """Makes room under the key before it refuses."""

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        for known in self._read_shots() if memory else ():
            if known.key == key:
                await self.delete_snapshot(known.ref)
        return await super().snapshot(ref, key, memory=memory, ignore=ignore)


DEFECTS = (
    Defect(
        "keeps the disk and calls it memory",
        claiming(SimulatedProvider, checkpoint=True),
        (GOES_ON,),
        HASTY,
    ),
    Defect("begins anew", BeginsAnew, (GOES_ON,)),
    Defect("keeps memory and disk of two moments", MemoryBeforeDisk, (GOES_ON,)),
    Defect("keeps memory as long as itself", ForgetsAtTheEnd, (GOES_ON,), HASTY),
    Defect("gives memory or not as it comes", MemoryByTheWay, (KEYS,)),
    Defect("keeps the memory of what is stopped", MemoryOfTheStopped, (KEYS,)),
    Defect("ignores that memory was asked for", IgnoresTheWish, (GOES_ON, KEYS)),
    Defect("looks at the key before its capabilities", LooksAtTheKeyFirst, (KEYS,)),
    Defect("loses a snapshot to a refusal", LosesItToARefusal, (KEYS,)),
    Defect(
        "claims memory, but no snapshots",
        claiming(ReferenceProvider, checkpoint=True),
        ("its_capabilities_are_plain_and_coherent",),
    ),
)
