"""Providers that get the life of a sandbox wrong: its end, its rests, its copies."""

import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from paddock.domain.errors import Conflict, NotFound
from paddock.domain.guest import GuestAddress
from paddock.domain.ids import new_ulid
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.ports.provider import Endpoint, Observation, PauseKind, Ref, SandboxSpec
from paddock.testing.broken.defect import Defect, claiming
from paddock.testing.records import Record
from paddock.testing.reference import ReferenceProvider
from paddock.testing.simulated import PausesToDisk, SimulatedProvider

STOPPING = (
    "a_stopped_sandbox_starts_again_with_its_disk_and_env",
    "stop_and_start_can_be_repeated",
    "a_stopped_sandbox_says_why_and_takes_no_commands",
    "a_stopped_sandbox_outlives_a_restart_and_can_be_destroyed",
)
PAUSING = (
    "a_paused_sandbox_stands_still_and_goes_on_where_it_was",
    "pause_and_resume_can_be_repeated",
    "a_paused_sandbox_is_found_but_takes_no_commands",
    "a_paused_sandbox_can_be_destroyed",
)
SNAPSHOTS = (
    "a_snapshot_is_one_moment_of_a_running_disk",
    "a_sandbox_of_a_snapshot_is_a_sandbox_of_its_own",
    "the_same_key_gives_the_same_snapshot",
    "a_snapshot_outlives_its_source",
    "deleting_a_snapshot_harms_nobody",
)
FORKING = (
    "a_fork_has_the_disk_and_both_go_on",
    "a_fork_is_what_its_spec_says",
    "a_fork_outlives_its_source",
    "the_same_key_gives_the_same_fork",
)


class DestroysOnce(ReferenceProvider):
    """Is offended when there is nothing left to destroy."""

    async def destroy(self, ref: Ref) -> None:
        self._record(ref)
        await super().destroy(ref)


class KillsOnlyTheGuest(ReferenceProvider):
    """Leaves whatever the guest had started."""

    async def _remove(self, record: Record) -> None:
        with suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGKILL)
        shutil.rmtree(self._records.home(record.id), ignore_errors=True)


class DestroysWhenClosed(ReferenceProvider):
    """Takes everything down with itself."""

    async def aclose(self) -> None:
        async for seen in self.find({}):
            await self.destroy(seen.ref)


class RestartsTheGuest(ReferenceProvider):
    """Has a new guest for every new client."""

    async def guest(self, ref: Ref) -> GuestAddress:
        self._running(ref)
        await self.stop(ref)
        await self.start(ref)
        return await super().guest(ref)


class FreshDiskAtStart(ReferenceProvider):
    """Starts again with nothing."""

    async def start(self, ref: Ref) -> Observation:
        disk = self._disk(ref.id)
        if disk.exists():
            shutil.rmtree(disk)
            disk.mkdir()
        return await super().start(ref)


class StrictStart(ReferenceProvider):
    """Refuses to start what runs."""

    async def start(self, ref: Ref) -> Observation:
        if self._record(ref).state is SandboxState.RUNNING:
            raise Conflict(f"{ref.id} runs already")
        return await super().start(ref)


class AddressOfTheStopped(ReferenceProvider):
    """Gives the address of a guest that is not there."""

    async def guest(self, ref: Ref) -> GuestAddress:
        return self._address(self._record(ref))


class PortsOfTheStopped(ReferenceProvider):
    """Leads to ports of a sandbox that has ended."""

    async def endpoint(self, ref: Ref, port: int) -> Endpoint:
        return Endpoint(port, url=f"http://127.0.0.1:{port}")


class ForgetsWhy(ReferenceProvider):
    """Does not keep the reason of a stop."""

    async def stop(self, ref: Ref, reason: Reason = Reason.USER) -> Observation:
        return await super().stop(ref, Reason.USER)


class HidesTheStopped(ReferenceProvider):
    """Lists only what runs."""

    async def find(self, labels: Mapping[str, str]) -> AsyncIterator[Observation]:
        async for seen in super().find(labels):
            if seen.state is not SandboxState.STOPPED:
                yield seen


class PretendsToPause(SimulatedProvider):
    """Changes the state and nothing else."""

    async def _turn(self, ref: Ref, before: SandboxState, after: SandboxState) -> Observation:
        return self._observation(self._records.write(replace(self._record(ref), state=after)))


class StrictPause(SimulatedProvider):
    """Refuses to pause what is paused."""

    async def pause(self, ref: Ref) -> Observation:
        if self._record(ref).state is SandboxState.PAUSED:
            raise Conflict(f"{ref.id} is paused already")
        return await super().pause(ref)


class AddressOfThePaused(SimulatedProvider):
    """Gives the address of a guest that cannot answer."""

    async def guest(self, ref: Ref) -> GuestAddress:
        return self._address(self._record(ref))


class PortsOfThePaused(SimulatedProvider):
    """Leads to ports at which nobody can answer."""

    async def endpoint(self, ref: Ref, port: int) -> Endpoint:
        return Endpoint(port, netns_pid=self._record(ref).pid)


class KeepsThePaused(SimulatedProvider):
    """Does not destroy what stands still."""

    async def destroy(self, ref: Ref) -> None:
        record = self._records.read(ref.id)
        if record is None or record.state is not SandboxState.PAUSED:
            await super().destroy(ref)


class CopiesWhileItRuns(SimulatedProvider):
    """Takes its time for a copy of a disk that changes."""

    @contextmanager
    def _frozen(self, record: Record) -> Iterator[None]:
        yield

    def _copy(self, source: Path, target: Path) -> None:
        super()._copy(source, target)
        time.sleep(0.1)
        for late in source.glob("second"):
            shutil.copy2(late, target / late.name)


class ForgetsToThaw(SimulatedProvider):
    """Leaves the source of a copy standing still."""

    @contextmanager
    def _frozen(self, record: Record) -> Iterator[None]:
        with super()._frozen(record):
            yield
        # The guest itself has to answer, or the check would end at its deadline only.
        for proc in record.family.members():
            if proc.pid != record.pid:
                os.kill(proc.pid, signal.SIGSTOP)


class InheritsTheEnv(SimulatedProvider):
    """Gives a copy the environment of what it was copied from."""

    def _lay_out(self, record: Record, spec: SandboxSpec, source: str) -> None:
        super()._lay_out(record, spec, source)
        shots = {shot.ref: shot.source for shot in self._read_shots()}
        origin = shots[spec.snapshot] if spec.snapshot else source
        if origin:
            (self._records.home(record.id) / "origin").write_text(origin)

    def _env(self, record: Record) -> dict[str, str]:
        note = self._records.home(record.id) / "origin"
        origin = self._records.read(note.read_text()) if note.exists() else None
        return super()._env(replace(record, env=origin.env if origin else record.env))


class LinksInsteadOfCopying(SimulatedProvider):
    """A copy that is the original under another name."""

    def _copy(self, source: Path, target: Path) -> None:
        if target.exists():
            target.rmdir()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source.resolve())


class NewSnapshotEachTime(SimulatedProvider):
    """Does not know the keys of snapshots."""

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        return replace(
            await super().snapshot(ref, new_ulid(), memory=memory, ignore=ignore), key=key
        )


class AnySource(SimulatedProvider):
    """Gives the snapshot of one sandbox for that of another."""

    def _check_same(self, known: Snapshot, ref: Ref, **wish: object) -> None:
        pass


class NewForkEachTime(SimulatedProvider):
    """Does not know the keys of forks."""

    async def fork(self, ref: Ref, key: str, spec: SandboxSpec) -> Observation:
        return replace(await super().fork(ref, new_ulid(), spec), key=key)


class ForksOfAnything(SimulatedProvider):
    """Gives whatever fork is there under the key."""

    async def fork(self, ref: Ref, key: str, spec: SandboxSpec) -> Observation:
        known = self._records.of_key(key)
        return self._observation(known) if known else await super().fork(ref, key, spec)


class SnapshotsDieWithTheirSource(SimulatedProvider):
    """Removes the snapshots of what is destroyed."""

    async def destroy(self, ref: Ref) -> None:
        for shot in self._read_shots():
            if shot.source == ref.id:
                await self.delete_snapshot(shot.ref)
        await super().destroy(ref)


class DeletesOnce(SimulatedProvider):
    """Is offended when there is no such snapshot."""

    async def delete_snapshot(self, ref: SnapshotRef) -> None:
        if not (self._shots / ref.id).exists():
            raise NotFound(f"no snapshot {ref.id}")
        await super().delete_snapshot(ref)


DEFECTS = (
    Defect(
        "refuses the second destroy()",
        DestroysOnce,
        ("destroying_twice_is_success_and_nothing_is_found_after",),
    ),
    Defect("kills only the guest", KillsOnlyTheGuest, ("destroying_leaves_no_process_behind",)),
    Defect(
        "destroys everything when closed",
        DestroysWhenClosed,
        ("a_new_instance_finds_what_the_old_one_left_running",),
    ),
    Defect(
        "restarts the guest for every client",
        RestartsTheGuest,
        ("a_run_goes_on_while_nobody_watches",),
    ),
    Defect("loses the disk", FreshDiskAtStart, (STOPPING[0], STOPPING[3])),
    Defect("refuses to start what runs", StrictStart, (STOPPING[1],)),
    Defect("forgets why it stopped", ForgetsWhy, (STOPPING[2],)),
    Defect("gives the address of a stopped guest", AddressOfTheStopped, (STOPPING[2],)),
    Defect("leads to ports of what is stopped", PortsOfTheStopped, (STOPPING[2],)),
    Defect("hides what is stopped", HidesTheStopped, (STOPPING[3],)),
    Defect("stops without claiming it", claiming(ReferenceProvider, stop=False), STOPPING),
    Defect("pretends to pause", PretendsToPause, (PAUSING[0],)),
    Defect("loses the memory", claiming(PausesToDisk, pause=PauseKind.MEMORY), (PAUSING[0],)),
    Defect("refuses to pause twice", StrictPause, (PAUSING[1],)),
    Defect("gives the address of a paused guest", AddressOfThePaused, (PAUSING[2],)),
    Defect("leads to ports of what is paused", PortsOfThePaused, (PAUSING[2],)),
    Defect("does not destroy what is paused", KeepsThePaused, (PAUSING[3],)),
    Defect("pauses without claiming it", claiming(SimulatedProvider, pause=PauseKind.NO), PAUSING),
    Defect("copies what changes", CopiesWhileItRuns, (SNAPSHOTS[0], FORKING[0])),
    Defect("forgets to thaw", ForgetsToThaw, (SNAPSHOTS[0], FORKING[0])),
    Defect("inherits the env", InheritsTheEnv, (SNAPSHOTS[1], FORKING[1])),
    Defect(
        "links instead of copying",
        LinksInsteadOfCopying,
        (SNAPSHOTS[1], SNAPSHOTS[3], FORKING[0], FORKING[2]),
    ),
    Defect("makes a snapshot each time", NewSnapshotEachTime, (SNAPSHOTS[2],)),
    Defect("gives the snapshot of another sandbox", AnySource, (SNAPSHOTS[2],)),
    Defect("makes a fork each time", NewForkEachTime, (FORKING[3],)),
    Defect("gives whatever fork is there", ForksOfAnything, (FORKING[3],)),
    Defect("loses snapshots with their source", SnapshotsDieWithTheirSource, (SNAPSHOTS[3],)),
    Defect("refuses the second deletion", DeletesOnce, (SNAPSHOTS[4],)),
    Defect("snapshots without claiming it", claiming(SimulatedProvider, snapshot=False), SNAPSHOTS),
    Defect("forks without claiming it", claiming(SimulatedProvider, fork=False), FORKING),
)
