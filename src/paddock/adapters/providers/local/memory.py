"""The memory of a running sandbox on disk: written down by gVisor while nothing in it moves.

What its guest holds of the host's, and programs that were started in it from outside, cannot be
written down. So the guest leaves before and is brought back afterwards, whatever happens between.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.host.launch_control import Finished
from paddock.adapters.providers.local import door, packed, runtime
from paddock.adapters.providers.local.machine import Machines
from paddock.adapters.providers.local.packing import free
from paddock.adapters.providers.local.records import Memory, Records, SandboxRecord
from paddock.adapters.providers.local.storage import Storage
from paddock.adapters.providers.local.storage.faults import explained
from paddock.domain.agent import AGENTS
from paddock.domain.errors import (
    Broken,
    Conflict,
    LimitExceeded,
    NotFound,
    PaddockError,
    TimedOut,
    Unavailable,
    Unsupported,
)
from paddock.guest_client import Guest

_COMMAND_S = 30.0
_WRITE_S = 600.0
_LEAVE_S = 10.0
_OTHERS_S = 5.0
_TO_COME_AND_GO = 64 << 20
_CANNOT = {
    "bound host socket": (
        "a program in it listens on a unix socket on its disk, which gVisor cannot write down",
        "end it, or have its socket in /run or /dev/shm, which are memory; "
        "or take the snapshot without memory",
    ),
    "deleted and invalidated dentries": (
        "a program in it has a file open that was removed, which gVisor cannot write down",
        "end it, or take the snapshot without memory",
    ),
    "no space left": ("there is no room for its memory", "delete what is no longer needed"),
}
"""What gVisor says, what it means, and what to do."""


@dataclass(frozen=True, slots=True)
class Memories:
    """Writes sandboxes of one installation down, and has their guests come back."""

    machines: Machines
    records: Records
    storage: Storage

    def describe(self, record: SandboxRecord) -> Memory:
        """What has to be known of it besides; before anything is done."""
        bundle = self.machines.layout.bundle(record.ref)
        version = runtime.choose(record.runtime).version
        shown = packed.source_of(bundle, AGENTS) is not None
        return Memory(version, packed.archive_of(bundle), record.resources, shown)

    async def send_away(self, record: SandboxRecord) -> SandboxRecord:
        """Before its guest is asked to leave; it can come back also where its disk is full."""
        record = self.records.change(record, away=True)
        await self._limit(record, _TO_COME_AND_GO)
        return record

    async def bring_back(self, record: SandboxRecord) -> SandboxRecord:
        """It goes on and its guest answers, however far it had come with leaving."""
        await self._return(record)
        await self._limit(record)
        return self.records.change(record, away=False)

    async def _limit(self, record: SandboxRecord, more: int = 0) -> None:
        limit = (record.resources.disk_mib << 20) + record.granted_bytes + more
        volume = self.machines.volumes / record.ref
        await asyncio.to_thread(self.storage.set_limit, volume, limit)

    @asynccontextmanager
    async def written(self, record: SandboxRecord, image: Path) -> AsyncIterator[None]:
        """Its memory is in `image`, and nothing in it moves until this ends.

        The caller sends it away before, and brings it back whatever happens.
        """
        self._check_room(record, image)
        with explained(image):
            image.mkdir(mode=0o700, parents=True)
        async with self.machines.tunnels.silent(record.ref):
            await self._leave(record)
            self.machines.on_step("memory.left")
            await self._pause(record)
            self.machines.on_step("memory.paused")
            engine, state = self._engine(record)
            argv = engine.checkpoint_argv(state, image, record.ref)
            finished = await uncancelled(self.machines.launch.run(argv, timeout=_WRITE_S))
            if finished.code != 0:
                raise _explain(record.ref, finished)
            self.machines.on_step("memory.written")
            yield

    async def _return(self, record: SandboxRecord) -> None:
        assert record.machine is not None
        # One that was not paused refuses; whether it moves is seen by its guest.
        await self._run(record, "resume")
        volume = self.machines.volumes / record.ref
        if not door.has_left(volume):
            try:
                await self._leave(record)
            except Conflict:
                return  # it does not know how to leave, so it never did
            except Unavailable:
                pass  # it may have gone without a word
        with explained(volume):
            await asyncio.to_thread(door.write_letter, volume, record.token)
        address = self.machines.layout.socket(record.ref)
        await door.take_back(volume, address, record.machine.init.alive)

    async def _leave(self, record: SandboxRecord) -> None:
        """The guest holds nothing of the host's when this returns."""
        volume = self.machines.volumes / record.ref
        await door.expect_to_leave(volume)
        try:
            async with Guest(self.machines.address(record)) as guest:
                await guest.let_go()
        except (NotFound, Unsupported) as error:
            raise Conflict(
                f"the guest of sandbox {record.ref} is of a version that cannot be written down",
                remediation="stop and start the sandbox once; its disk is kept",
            ) from error
        except (Unavailable, TimedOut):
            pass  # it may have been quicker than its answer
        until = time.monotonic() + _LEAVE_S
        while not door.has_left(volume):
            if time.monotonic() > until:
                raise Unavailable(f"the guest of sandbox {record.ref} does not leave its socket")
            await asyncio.sleep(0.005)
        # To the host its socket is open for a while yet: nobody shall wait there for an answer.
        self.machines.layout.socket(record.ref).unlink(missing_ok=True)

    async def _pause(self, record: SandboxRecord) -> None:
        """With nobody in it who came from outside: what is written with one cannot go on."""
        until = time.monotonic() + _OTHERS_S
        while True:
            finished = await self._run(record, "pause")
            if finished.code != 0:
                raise _explain(record.ref, finished)
            listed = await self._run(record, "ps")
            if listed.code != 0:
                raise _explain(record.ref, listed)
            if not from_outside(listed.output):
                return
            await self._run(record, "resume")
            if time.monotonic() > until:
                raise Conflict(
                    f"somebody is connected to a port of sandbox {record.ref}, by a program that "
                    "cannot be written down with it",
                    remediation="close previews and port forwards of other processes first, or "
                    "take the snapshot without memory",
                )
            await asyncio.sleep(0.05)

    def _check_room(self, record: SandboxRecord, image: Path) -> None:
        need = self.machines.cgroup(record.ref).memory_bytes() or 0
        room = free(image.parent.parent)
        if need > room:
            raise LimitExceeded(
                f"sandbox {record.ref} has {need >> 20} MiB in memory, and the pool has "
                f"{room >> 20} MiB to spare",
                remediation="delete sandboxes or snapshots that are no longer needed",
            )

    async def _run(self, record: SandboxRecord, verb: str) -> Finished:
        engine, state = self._engine(record)
        argv = engine.simple_argv(state, verb, record.ref)
        return await uncancelled(self.machines.launch.run(argv, timeout=_COMMAND_S))

    def _engine(self, record: SandboxRecord) -> tuple[runtime.Runtime, Path]:
        return runtime.choose(record.runtime), self.machines.layout.runtime_state


def from_outside(listed: str) -> list[int]:
    """Processes without a parent in the sandbox, of a table of `runsc ps`."""
    rows = [line.split() for line in listed.splitlines()]
    numbers = [(int(row[1]), row[2]) for row in rows if len(row) > 2 and row[1].isdigit()]
    return [pid for pid, parent in numbers if parent == "0" and pid != 1]


def _explain(ref: str, finished: Finished) -> PaddockError:
    """gVisor's traces are long; what it says comes first."""
    for words, (why, remediation) in _CANNOT.items():
        if words in finished.output:
            kind = LimitExceeded if "room" in why else Conflict
            return kind(
                f"the memory of sandbox {ref} cannot be kept: {why}", remediation=remediation
            )
    said = finished.output.strip().partition("\n")[0]
    return Broken(f"runsc could not write down sandbox {ref} ({finished.code}): {said}")
