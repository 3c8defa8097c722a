"""The smallest provider that keeps the contract: a guest as a plain process of this host.

There is no fence whatsoever, and `check()` says so. It exists to show what a provider has to do,
and to try everything above the port where nothing better is at hand.
"""

import asyncio
import os
import pwd
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NoReturn

from paddock.domain.egress import CLOSED, EgressPolicy
from paddock.domain.errors import (
    Broken,
    Conflict,
    InvalidRequest,
    NotFound,
    Unavailable,
    Unsupported,
)
from paddock.domain.guest import GuestAddress
from paddock.domain.ids import new_id
from paddock.domain.reason import Reason
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.guest.pack import build
from paddock.guest_client import Guest
from paddock.ports.provider import (
    Capabilities,
    Endpoint,
    Finding,
    Health,
    Isolation,
    Observation,
    OpenDisk,
    Ref,
    SandboxSpec,
    Status,
    Usage,
)
from paddock.ports.volumes import VolumeFiles
from paddock.testing import processes
from paddock.testing.records import MARKER, Record, Records, digest, locked

TEMPLATE = "plain"

_BOOT_S = 20.0
_LONGEST_SOCKET_PATH = 107
# The guest belongs to nobody: it has to outlive the process that asked for it.
_LAUNCH = 'setsid "$@" </dev/null >>"$0" 2>&1 & echo $!'


class ReferenceProvider:
    """Sandboxes below one directory; two instances with the same directory are one provider."""

    def __init__(self, place: Path, name: str = "reference") -> None:
        self.name = name
        self._place = place
        self._records = Records(place / "sbx")
        for part in ("sbx", "run", "locks"):
            (place / part).mkdir(parents=True, exist_ok=True)
        if len(str(self._socket(new_id("sbx")))) > _LONGEST_SOCKET_PATH:
            raise InvalidRequest(
                f"{place} is too long a path for the guests' sockets",
                remediation="choose a directory with a shorter name",
            )

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(isolation=Isolation.NONE, stop=True, late_ports=True)

    async def check(self) -> Health:
        fence = Finding(
            name="isolation",
            status=Status.DEGRADED,
            found="none: commands run as this process's user and see all of this host",
            fix="use it for tests only; choose the local provider for everything else",
        )
        python = Finding("python", Status.OK, sys.version.split()[0])
        return Health(usable=True, findings=(python, fence))

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        async with locked(self._place / "locks", key):
            return await self._create(key, spec)

    async def observe(self, ref: Ref) -> Observation:
        return self._observation(self._record(ref))

    async def find(self, labels: Mapping[str, str]) -> AsyncIterator[Observation]:
        for record in self._records.all():
            if labels.items() <= record.labels.items():
                yield self._observation(record)

    async def pause(self, ref: Ref) -> Observation:
        self._cannot("pause", "pause")

    async def resume(self, ref: Ref) -> Observation:
        self._cannot("resume", "pause")

    async def stop(self, ref: Ref, reason: Reason = Reason.USER) -> Observation:
        async with locked(self._place / "locks", self._record(ref).key):
            record = self._record(ref)
            if record.state is not SandboxState.STOPPED:
                await record.family.end()
                stopped = replace(record, state=SandboxState.STOPPED, reason=reason, pid=0)
                record = self._records.write(stopped)
            return self._observation(record)

    async def start(self, ref: Ref) -> Observation:
        async with locked(self._place / "locks", self._record(ref).key):
            record = self._record(ref)
            if record.state is SandboxState.STOPPED:
                record = await self._boot(record)
            return self._observation(record)

    async def archive(self, ref: Ref) -> Observation:
        self._cannot("archive", "archive")

    async def open_disk(self, ref: Ref) -> OpenDisk:
        self._cannot("open_disk", "sleeping_disk")

    async def destroy(self, ref: Ref) -> None:
        record = self._records.read(ref.id)
        if record is None or ref.provider != self.name:
            return
        async with locked(self._place / "locks", record.key):
            await self._remove(self._records.read(ref.id) or record)

    async def renew(self, ref: Ref, until: float) -> Observation:
        self._cannot("renew", "expires_itself")

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        self._cannot("snapshot", "snapshot")

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        self._cannot("snapshots", "snapshot")
        yield

    async def delete_snapshot(self, ref: SnapshotRef) -> None:
        self._cannot("delete_snapshot", "snapshot")

    async def fork(self, ref: Ref, key: str, spec: SandboxSpec) -> Observation:
        self._cannot("fork", "fork")

    async def create_volume(self, volume: str, size_mib: int | None) -> None:
        self._cannot("create_volume", "volumes")

    async def delete_volume(self, volume: str) -> None:
        self._cannot("delete_volume", "volumes")

    async def open_volume(self, volume: str) -> VolumeFiles:
        self._cannot("open_volume", "volumes")

    async def guest(self, ref: Ref) -> GuestAddress:
        return self._address(self._running(ref))

    async def endpoint(self, ref: Ref, port: int) -> Endpoint:
        self._running(ref)
        return Endpoint(port, url=f"http://127.0.0.1:{port}")

    async def set_egress(self, ref: Ref, policy: EgressPolicy) -> None:
        self._cannot("set_egress", "live_egress")

    async def usage(self, ref: Ref) -> Usage:
        self._cannot("usage", "metrics")

    async def aclose(self) -> None:
        """Nothing is held: the guests belong to nobody and the records are on disk."""

    async def _create(self, key: str, spec: SandboxSpec, source: str = "") -> Observation:
        known, wanted = self._records.of_key(key), digest(spec, source)
        if known is not None and known.state is not SandboxState.CREATING:
            if known.digest != wanted:
                raise Conflict(
                    f"key {key} belongs to sandbox {known.id}, which was made of another spec",
                    remediation="use another key, or destroy that sandbox first",
                )
            return self._observation(known)
        self._validate(spec, source)
        if known is not None:
            await self._remove(known)
        record = Record(
            id=new_id("sbx"),
            key=key,
            digest=wanted,
            template=self._origin(spec, source),
            labels=dict(spec.labels),
            env=dict(spec.env),
            resources=spec.resources,
            ports=spec.ports,
            egress=spec.egress.mode,
            volumes=spec.volumes,
            created_at=time.time(),
        )
        try:
            self._lay_out(record, spec, source)
            return self._observation(await self._boot(self._records.write(record)))
        except BaseException:
            await self._remove(record)
            raise

    def _validate(self, spec: SandboxSpec, source: str) -> None:
        """Everything that can be refused is refused before anything is made."""
        self._check_volumes(spec)
        if spec.snapshot is not None:
            self._cannot("create from a snapshot", "snapshot")
        if spec.egress != CLOSED:
            self._cannot(f"create with egress {spec.egress.mode}", "egress")
        self._known_template(spec.template)
        self._check_limits(spec)

    def check_spec(self, spec: SandboxSpec) -> None:
        self._check_limits(spec)
        if spec.template:
            self._known_template(spec.template)

    def _check_volumes(self, spec: SandboxSpec) -> None:
        if spec.volumes:
            self._cannot("create with volumes", "volumes")

    def _check_limits(self, spec: SandboxSpec) -> None:
        spec.resources.check_within(_most(self._place))

    def _known_template(self, template: str) -> None:
        if template != TEMPLATE:
            raise NotFound(
                f"provider {self.name} has no template {template!r}",
                remediation=f"its only template is {TEMPLATE!r}",
            )

    def _origin(self, spec: SandboxSpec, source: str) -> str:
        """The template that the disk comes from in the end."""
        return spec.template

    def _lay_out(self, record: Record, spec: SandboxSpec, source: str) -> None:
        """The directories of a new sandbox, before anything runs."""
        for part in ("", "home", "guest"):
            (self._records.home(record.id) / part).mkdir()

    async def _boot(self, record: Record) -> Record:
        """Start the guest and wait until it answers."""
        log = self._records.home(record.id) / "guest.log"
        argv = (*self._prefix(record), *self._argv(record))
        guest = await launch(argv, log, {MARKER: record.id})
        record = self._records.write(replace(record, pid=guest.pid, pid_start=guest.start))
        give_up_at = time.monotonic() + _BOOT_S
        while not await introduced(self._address(record), self._env(record)):
            if time.monotonic() > give_up_at or not guest.lives:
                said = log.read_text(errors="replace")[-500:].strip()
                raise Broken(f"the guest of {record.id} does not answer: {said}")
            await asyncio.sleep(0.01)
        return self._records.write(replace(record, state=SandboxState.RUNNING, reason=None))

    def _prefix(self, record: Record) -> tuple[str, ...]:
        """What the guest is started through."""
        return ()

    def _argv(self, record: Record) -> tuple[str, ...]:
        home = self._records.home(record.id)
        options = {
            "--socket": str(self._socket(record.id)),
            "--state-dir": str(home / "guest"),
            "--sandbox-id": record.id,
            "--user": pwd.getpwuid(os.getuid()).pw_name,
            "--workdir": str(self._disk(record.id)),
        }
        words = [word for option in options.items() for word in option]
        return (sys.executable, "-I", "-S", str(self._guest_zip()), *words)

    def _env(self, record: Record) -> dict[str, str]:
        """The account's own home lies outside of our directory and is not to be touched."""
        return {"HOME": str(self._disk(record.id)), **record.env}

    def _disk(self, identifier: str) -> Path:
        return self._records.home(identifier) / "home"

    def _guest_zip(self) -> Path:
        target = self._place / "guest.zip"
        if not target.exists():
            part = target.with_name(f"{target.name}.{new_id('part')}")
            part.write_bytes(_packed_guest())
            part.replace(target)
        return target

    def _address(self, record: Record) -> GuestAddress:
        return GuestAddress(socket=str(self._socket(record.id)))

    def _socket(self, identifier: str) -> Path:
        """Short, because the kernel takes no long path for one."""
        return self._place / "run" / identifier[-12:]

    async def _remove(self, record: Record) -> None:
        await (self._records.read(record.id) or record).family.end()
        self._socket(record.id).unlink(missing_ok=True)
        shutil.rmtree(self._records.home(record.id), ignore_errors=True)

    def _record(self, ref: Ref) -> Record:
        record = self._records.read(ref.id) if ref.provider == self.name else None
        if record is None:
            raise NotFound(
                f"provider {self.name} has no sandbox {ref.id}",
                remediation="list the sandboxes it has; this one is gone or belongs elsewhere",
            )
        return record

    def _running(self, ref: Ref) -> Record:
        record = self._record(ref)
        if (state := self._observation(record).state) is not SandboxState.RUNNING:
            raise Conflict(f"sandbox {ref.id} is {state}", remediation="start or resume it first")
        return record

    def _observation(self, record: Record) -> Observation:
        state, reason = record.state, record.reason
        if record.pid and not _is_alive(record):
            state, reason = SandboxState.FAILED, Reason.CRASHED
        return Observation(
            ref=Ref(self.name, record.id),
            key=record.key,
            state=state,
            reason=reason,
            labels=record.labels,
            resources=record.resources,
            template=record.template,
            created_at=record.created_at,
        )

    def _cannot(self, operation: str, flag: str) -> NoReturn:
        raise Unsupported(
            f"provider {self.name} does not support {operation}: its capability `{flag}` is off",
            remediation=f"choose a provider whose capabilities have `{flag}`",
        )


def _is_alive(record: Record) -> bool:
    found = processes.read(record.pid)
    return found is not None and found.start == record.pid_start and not found.is_dead


def _most(place: Path) -> Resources:
    """What this host has."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Resources(
        cpus=float(os.cpu_count() or 1),
        memory_mib=memory >> 20,
        disk_mib=shutil.disk_usage(place).total >> 20,
        pids=int(Path("/proc/sys/kernel/pid_max").read_text()),
    )


async def launch(argv: tuple[str, ...], log: Path, env: Mapping[str, str]) -> processes.Proc:
    """Start a process that is not ours to wait for."""
    shell = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        _LAUNCH,
        str(log),
        *argv,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **env},
    )
    output, _ = await shell.communicate()
    started = processes.read(int(output))
    if started is None:
        raise Broken(f"{argv[0]} ended at once: {log.read_text(errors='replace')[-500:].strip()}")
    return started


@cache
def _packed_guest() -> bytes:
    """Compiling it takes a tenth of a second, and tests make many providers."""
    with tempfile.TemporaryDirectory() as directory:
        return Path(build(f"{directory}/guest.zip")).read_bytes()


async def introduced(address: GuestAddress, env: Mapping[str, str]) -> bool:
    """Tell the guest the sandbox's environment; False while it does not listen yet.

    Not by a file of NAME=VALUE lines: a value may have lines of its own.
    """
    async with Guest(address) as guest:
        try:
            await guest.init(env=env)
        except Unavailable:
            return False
    return True
