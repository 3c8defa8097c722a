"""A provider for tests that claims much and does it by simple means: signals, copies, a namespace.

It has no fence either. What it is good for is to try the checks of capabilities that the reference
provider lacks, and whatever else needs a provider with pause, snapshots or forks.
"""

import json
import os
import shutil
import stat
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from paddock.domain.egress import CLOSED, NetworkMode
from paddock.domain.errors import Conflict, InvalidRequest, LimitExceeded, NotFound
from paddock.domain.ids import new_id
from paddock.domain.ignoring import LeftOut, Rule, check_whole, parsed
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.ports.provider import (
    Capabilities,
    Endpoint,
    Isolation,
    Observation,
    PauseKind,
    Ref,
    SandboxSpec,
    Usage,
)
from paddock.testing.leaving_out import leave_out
from paddock.testing.records import Record, locked
from paddock.testing.sharing import SharingProvider
from paddock.testing.showing import ShowingProvider

IMAGE = "registry.example/simulated:1"

# A network namespace with nothing but loopback; exec, so that the guest keeps the pid.
_CLOSED_NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


class SimulatedProvider(SharingProvider, ShowingProvider):
    """The reference provider with everything that can be had without a fence."""

    def __init__(self, place: Path, name: str = "simulated") -> None:
        super().__init__(place, name)
        self._shots = place / "snp"
        self._shots.mkdir(exist_ok=True)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            isolation=Isolation.NONE,
            pause=PauseKind.MEMORY,
            stop=True,
            archive=True,
            sleeping_disk=os.geteuid() == 0,
            snapshot=True,
            snapshot_ignore=True,
            fork=True,
            egress=os.geteuid() == 0,
            any_image=True,
            expires_itself=True,
            metrics=True,
            volumes=os.geteuid() == 0,
            max_lifetime_s=3600.0,
            max_ports=3,
            max_labels=4,
        )

    async def pause(self, ref: Ref) -> Observation:
        return await self._turn(ref, SandboxState.RUNNING, SandboxState.PAUSED)

    async def resume(self, ref: Ref) -> Observation:
        await self._hide(self._record(ref))
        return await self._turn(ref, SandboxState.PAUSED, SandboxState.RUNNING)

    async def renew(self, ref: Ref, until: float) -> Observation:
        record = self._record(ref)
        longest = self.capabilities.max_lifetime_s or 0.0
        if until > record.created_at + longest:
            raise LimitExceeded(
                f"sandbox {ref.id} lives at most {longest:g} s",
                remediation="renew it for less, or snapshot it",
            )
        return self._observation(self._records.write(replace(record, until=until)))

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        if memory and not self.capabilities.checkpoint:
            self._cannot("snapshot with memory", "checkpoint")
        if ignore and not self.capabilities.snapshot_ignore:
            self._cannot("snapshot with rules", "snapshot_ignore")
        if memory:
            check_whole(ignore)
        async with locked(self._place / "locks", f"snapshot {key}"):
            for known in self._read_shots():
                if known.key == key:
                    self._check_same(known, ref, memory=memory, ignore=ignore)
                    return known
            self._check_on_disk(ref)
            record = self._running(ref) if memory else self._record(ref)
            parsed(ignore, [str(self._disk(record.id).resolve())])
            return await self._take(record, key, memory=memory, ignore=ignore)

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        for shot in self._read_shots():
            yield shot

    async def delete_snapshot(self, ref: SnapshotRef) -> None:
        shutil.rmtree(self._shots / ref.id, ignore_errors=True)

    async def fork(self, ref: Ref, key: str, spec: SandboxSpec) -> Observation:
        self._check_on_disk(ref)
        async with locked(self._place / "locks", key):
            return await self._create(key, spec, self._record(ref).id)

    async def endpoint(self, ref: Ref, port: int) -> Endpoint:
        record = self._running(ref)
        if port not in record.ports:
            self._cannot(f"endpoint() of port {port}, which was not declared", "late_ports")
        if self._is_closed(record):
            return Endpoint(port, netns_pid=record.pid)
        return await super().endpoint(ref, port)

    async def usage(self, ref: Ref) -> Usage:
        record = self._record(ref)
        members = record.family.members()
        return Usage(
            cpu_seconds=sum(proc.cpu_seconds for proc in members),
            memory_bytes=sum(proc.memory_bytes for proc in members),
            disk_bytes=_size(self._disk(record.id)) + _size(self._packed(record.id).parent),
            pids=len(members),
        )

    async def _turn(self, ref: Ref, before: SandboxState, after: SandboxState) -> Observation:
        async with locked(self._place / "locks", self._record(ref).key):
            record = self._record(ref)
            if record.state is before:
                if after is SandboxState.PAUSED:
                    record.family.freeze()
                else:
                    record.family.thaw()
                record = self._records.write(replace(record, state=after))
            return self._observation(record)

    def _check_same(
        self, known: Snapshot, ref: Ref, *, memory: bool, ignore: tuple[str, ...]
    ) -> None:
        if (known.source, known.memory, known.ignore) != (ref.id, memory, ignore):
            raise Conflict(
                f"key {known.key} belongs to a snapshot of {known.source} "
                f"{'with' if known.memory else 'without'} memory and the rules {known.ignore}",
                remediation="use another key",
            )

    async def _take(
        self, record: Record, key: str, *, memory: bool, ignore: tuple[str, ...]
    ) -> Snapshot:
        ref = SnapshotRef(self.name, new_id("snp"))
        shot = Snapshot(ref, key, record.id, record.template, time.time(), memory=memory)
        part = self._shots / f"{ref.id}.part"
        try:
            await self._capture(record, part, memory=memory)
            if ignore:
                left_out = self._leave_out(record, part / "home", parsed(ignore))
                shot = replace(shot, ignore=ignore, left_out=left_out)
            (part / "snapshot.json").write_text(json.dumps(asdict(shot)))
            part.rename(self._shots / ref.id)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        return shot

    async def _capture(self, record: Record, target: Path, *, memory: bool) -> None:
        with self._frozen(record):
            self._copy(self._disk(record.id), target / "home")

    def _leave_out(self, record: Record, copy: Path, rules: Sequence[Rule]) -> LeftOut:
        return leave_out(copy, self._disk(record.id).resolve(), rules)

    def _read_shots(self) -> list[Snapshot]:
        files = sorted(self._shots.glob("snp_*/snapshot.json"))
        whole = (file for file in files if file.parent.suffix != ".part")
        return [msgspec.json.decode(file.read_bytes(), type=Snapshot) for file in whole]

    def _validate(self, spec: SandboxSpec, source: str) -> None:
        for what, given, most in (
            ("labels", len(spec.labels), self.capabilities.max_labels),
            ("ports", len(spec.ports), self.capabilities.max_ports),
        ):
            if most is not None and given > most:
                raise LimitExceeded(f"{given} {what}", remediation=f"give at most {most}")
        if spec.egress != CLOSED and not self.capabilities.egress:
            self._cannot(f"create with egress {spec.egress.mode}", "egress")
        if spec.egress.mode is NetworkMode.ALLOWLIST and not self.capabilities.allowlist:
            self._cannot("create with an allowlist", "allowlist")
        self._check_volumes(spec)
        self._check_limits(spec)
        if source and (spec.template or spec.snapshot):
            raise InvalidRequest("a fork names no source of its own")
        if not source and spec.snapshot is None:
            self._known_template(spec.template)

    def _known_template(self, template: str) -> None:
        if template != IMAGE:
            super()._known_template(template)

    def _origin(self, spec: SandboxSpec, source: str) -> str:
        if source:
            return self._record(Ref(self.name, source)).template
        if spec.snapshot is None:
            return spec.template
        for shot in self._read_shots():
            if shot.ref == spec.snapshot:
                return shot.template
        raise NotFound(
            f"provider {self.name} has no snapshot {spec.snapshot.id}",
            remediation="list the snapshots it has",
        )

    def _lay_out(self, record: Record, spec: SandboxSpec, source: str) -> None:
        super()._lay_out(record, spec, source)
        if spec.snapshot is not None:
            self._copy(self._shots / spec.snapshot.id / "home", self._disk(record.id))
        elif source:
            with self._frozen(self._record(Ref(self.name, source))):
                self._copy(self._disk(source), self._disk(record.id))

    def _prefix(self, record: Record) -> tuple[str, ...]:
        network = _CLOSED_NETWORK if self._is_closed(record) else ()
        return (*network, *self._mounting(record))

    def _is_closed(self, record: Record) -> bool:
        return record.egress == NetworkMode.NONE and self.capabilities.egress

    def _observation(self, record: Record) -> Observation:
        seen = super()._observation(record)
        if record.until is not None and time.time() > record.until:
            return replace(seen, state=SandboxState.FAILED, reason=Reason.DEADLINE)
        return seen

    @contextmanager
    def _frozen(self, record: Record) -> Iterator[None]:
        """Nothing of it runs meanwhile, so that the copy is of one moment."""
        if record.state is not SandboxState.RUNNING:
            yield
            return
        record.family.freeze()
        try:
            yield
        finally:
            record.family.thaw()

    def _copy(self, source: Path, target: Path) -> None:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=_special)


class PausesToDisk(SimulatedProvider):
    """Ends the processes of what it pauses; a resumed sandbox begins anew on its disk."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, pause=PauseKind.DISK)

    async def pause(self, ref: Ref) -> Observation:
        async with locked(self._place / "locks", self._record(ref).key):
            record = self._record(ref)
            await record.family.end()
            paused = replace(record, state=SandboxState.PAUSED, pid=0)
            return self._observation(self._records.write(paused))

    async def resume(self, ref: Ref) -> Observation:
        async with locked(self._place / "locks", self._record(ref).key):
            record = self._record(ref)
            await self._hide(record)
            if record.state is SandboxState.PAUSED:
                record = await self._boot(record)
            return self._observation(record)


def _special(directory: str, names: list[str]) -> list[str]:
    """Sockets and pipes, which are nothing once nobody listens."""
    modes = {name: Path(directory, name).lstat().st_mode for name in names}
    return [name for name, mode in modes.items() if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)]


def _size(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*"))
