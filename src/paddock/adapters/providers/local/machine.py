"""The running part of a sandbox: start it, reach it, freeze it, end it."""

import asyncio
import contextlib
import json
import secrets
import shutil
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.host import capabilities, visible_limits
from paddock.adapters.providers.host.cgroups import Cgroup, Hierarchies, is_member
from paddock.adapters.providers.host.launch_control import LaunchControl
from paddock.adapters.providers.host.mounts import Bind, Overlay
from paddock.adapters.providers.host.processes import Process
from paddock.adapters.providers.host.user_namespaces import Ids
from paddock.adapters.providers.local import binds, bundle, door, host_layer, packed, runtime
from paddock.adapters.providers.local.bundle import IdMap
from paddock.adapters.providers.local.id_ranges import IdRanges
from paddock.adapters.providers.local.layout import Layout, ids_of
from paddock.adapters.providers.local.plan import Image
from paddock.adapters.providers.local.records import Machine, SandboxRecord, boot_id
from paddock.adapters.providers.local.shared_volumes import volume_binds
from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.storage.volumes import SHARED, make_parts
from paddock.adapters.providers.local.tunnels import Tunnels
from paddock.domain.agent import AGENTS
from paddock.domain.errors import Broken, Unavailable
from paddock.domain.guest import GuestAddress

_BOOT_TIMEOUT_S = 30.0
_RESTORE_TIMEOUT_S = 300.0
"""What it takes goes by how much memory there is to be read."""
_BACKLOG = 512
_LIMITS = "limits"


@dataclass(frozen=True, slots=True)
class Machines:
    """Starts and ends the machines of one installation."""

    layout: Layout
    hierarchies: Hierarchies
    launch: LaunchControl
    volumes: Path
    init: str
    """The static first process, as a path on the host."""
    host_layer: Path
    on_step: Callable[[str], None]
    tunnels: Tunnels = field(default_factory=Tunnels)
    agents: Path | None = None
    """What all of them see of the host's agents; None shows them none."""

    _turns: Iterator[int] = field(default_factory=count)
    """Where the CPUs of the next sandbox begin."""

    def cgroup(self, ref: str) -> Cgroup:
        return Cgroup(self.hierarchies, self.layout.cgroup(ref))

    def change_limits(self, record: SandboxRecord) -> None:
        """Give a running machine the limits of its record."""
        self.cgroup(record.ref).apply(record.resources)
        if runtime.choose(record.runtime).joinable:
            visible_limits.pin(self.cgroup(record.ref), self._show_limits(record))

    def _show_limits(self, record: SandboxRecord) -> Sequence[int]:
        """Write what its programs see of its limits. Return the CPUs that are chosen for it."""
        usable = visible_limits.usable_cpus()
        cpus = visible_limits.choose_cpus(record.resources.cpus, usable, self._turns)
        visible_limits.write(self.layout.bundle(record.ref) / _LIMITS, record.resources, cpus)
        return cpus

    def address(self, record: SandboxRecord) -> GuestAddress:
        return GuestAddress(socket=str(self.layout.socket(record.ref)), token=record.token)

    async def way_to(self, record: SandboxRecord, port: int) -> str:
        """The socket for a port of a sandbox whose network nobody can enter."""
        engine = runtime.choose(record.runtime)
        execute = engine.exec_argv(self.layout.runtime_state, record.ref)
        return await self.tunnels.socket(self.layout.ports(record.ref), execute, port)

    async def boot(self, record: SandboxRecord, image: Image | None = None) -> Machine:
        """A running machine on the sandbox's volume. On failure the caller ends what is there."""
        return await self._boot(record, Disk(self.volumes / record.ref, image=image))

    async def show(self, record: SandboxRecord) -> GuestAddress:
        """A guest that has the disk of a sandbox that sleeps as its root, to be looked at only.

        A machine of its own with a name of its own, so that whoever starts, swept up or destroys
        the sandbox knows what to end. What it would write, were it let, lies beside the bundle.
        """
        view = replace(record, ref=shown_as(record.ref), machine=None)
        place = self.layout.bundle(view.ref)
        await self.sweep(view.ref)
        disk = Disk(place, above=str(self.volumes / record.ref / "upper"))
        try:
            await self._boot(view, disk)
        except BaseException:
            await uncancelled(self.sweep(view.ref))
            raise
        return self.address(view)

    async def hide(self, ref: str) -> None:
        """Nobody looks at its disk any more, whoever showed it; nobody doing so is success."""
        if self.layout.bundle(shown_as(ref)).exists():
            await self.sweep(shown_as(ref))

    async def _boot(self, record: SandboxRecord, disk: "Disk") -> Machine:
        engine = runtime.choose(record.runtime)
        image = disk.image
        ready = await self._bundle(record, engine, disk)
        directory = ready.directory
        self.on_step("boot.bundle")
        lowers = [*self._more_layers(engine), str(self.host_layer), record.lower]
        finished = await uncancelled(
            self.launch.run(
                self._start_argv(engine, directory, record.ref, image),
                timeout=_RESTORE_TIMEOUT_S if image else _BOOT_TIMEOUT_S,
                overlay=Overlay(
                    lowers,
                    str(disk.volume),
                    str(directory / "rootfs"),
                    above=disk.above,
                    stored=not disk.above,
                ),
                binds=ready.binds,
                ids=ready.ids,
            )
        )
        self.on_step("boot.runtime")
        if finished.code != 0:
            raise Broken(
                f"{engine.name} could not start sandbox {record.ref}: {finished.output.strip()}",
                remediation="`paddock doctor` shows what this host lacks",
            )
        init = self._first_process(record, engine)
        guest = init
        if engine.joinable:
            visible_limits.pin(self.cgroup(record.ref), ready.cpus)
            binds.check_attributes(record.ref, init.pid)
            guest = await self._join(record, init)
        else:
            # A packed guest is the first process itself; only its socket has to come out.
            take = door.take_back if image else door.close_door
            await take(self.volumes / record.ref, self.layout.socket(record.ref), init.alive)
        self.on_step("boot.guest")
        return Machine(boot_id(), init, guest)

    async def _bundle(
        self, record: SandboxRecord, engine: runtime.Runtime, disk: "Disk"
    ) -> "Ready":
        if engine.joinable:
            return self._write_bundle(record, engine, disk)
        # What a sandbox has put where its guest comes and goes is removed first, all of it.
        with explained(disk.volume):
            writing = asyncio.to_thread(self._write_bundle, record, engine, disk)
            return await uncancelled(writing)

    def _more_layers(self, engine: runtime.Runtime) -> list[str]:
        return [] if engine.joinable else [str(packed.layer(self.host_layer.parent))]

    def _first_process(self, record: SandboxRecord, engine: runtime.Runtime) -> Process:
        """What the runtime has started, unless its number is somebody else's already."""
        pid = int((self.layout.bundle(record.ref) / "pid").read_text())
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            process = Process.of(pid)
            if not engine.joinable or is_member(pid, self.layout.cgroup(record.ref)):
                return process
        raise Broken(f"the first process of sandbox {record.ref} ended as soon as it was started")

    def _start_argv(
        self, engine: runtime.Runtime, directory: Path, ref: str, image: Image | None
    ) -> list[str]:
        state = self.layout.runtime_state
        if image is None:
            return engine.run_argv(state, directory, ref)
        return engine.restore_argv(state, directory, image.directory, ref)

    def _write_bundle(
        self, record: SandboxRecord, engine: runtime.Runtime, disk: "Disk"
    ) -> "Ready":
        directory = self.layout.bundle(record.ref)
        (directory / "rootfs").mkdir(parents=True, exist_ok=True)
        ids = self._ids(record, directory)
        if disk.above:
            make_parts(directory, ids.first if ids else 0)
            directory.chmod(0o711)
        cpus = self._show_limits(record) if engine.joinable else ()
        spec = bundle.BundleSpec(
            root=str(directory / "rootfs"),
            init=self.init,
            guest_state=str(disk.volume / "guest"),
            cgroup_path=self.layout.cgroup(record.ref),
            resources=record.resources,
            idmap=IdMap(ids.first, ids.count) if ids else None,
            user_namespace=ids.namespace if ids else "",
            no_new_privs=record.no_new_privs,
            read_only=bool(disk.above),
            extra_mounts=(
                *(_limit_mounts(directory) if cpus else ()),
                *self._agents(disk.image),
                *volume_binds(self.volumes.parent, record.volumes, read_only=bool(disk.above)),
            ),
        )
        if not engine.joinable:
            volume = self.volumes / record.ref
            archive = packed.archive(self.host_layer.parent, disk.image.guest if disk.image else "")
            spec = packed.prepare(spec, record, volume, archive)
            if disk.image is not None:
                door.write_letter(volume, record.token)
        config, bound = binds.relocate(
            bundle.build(spec),
            directory / "mounts",
            read_only_only=not engine.joinable,
            stored=(self.volumes, self.volumes.parent / SHARED),
        )
        (directory / "config.json").write_text(json.dumps(config))
        return Ready(directory, bound, ids, cpus)

    def _ids(self, record: SandboxRecord, directory: Path) -> Ids | None:
        """Reserve an ID range for as long as the bundle exists."""
        if record.idmap is None:
            return None
        for left in directory.glob("user-*"):  # of a start that was not swept
            left.unlink()
        namespace = directory / f"user-{secrets.token_hex(8)}"
        first = IdRanges(ids_of(self.layout)).take(namespace)
        return Ids(first, record.idmap.first, record.idmap.count, str(namespace))

    def _agents(self, image: Image | None) -> tuple[dict[str, Any], ...]:
        """Processes that go on have what was mounted for them, and nothing more."""
        if self.agents is None or (image is not None and not image.agents):
            return ()
        return (bundle.bind(str(self.agents), AGENTS, "ro"),)

    async def _join(self, record: SandboxRecord, init: Process) -> Process:
        cgroup = self.cgroup(record.ref)
        with self._listen(record.ref) as listener:
            await uncancelled(
                self.launch.join(
                    listener,
                    init,
                    cgroup,
                    config=guest_config(record),
                    capabilities=capabilities.numbers(),
                    no_new_privs=record.no_new_privs,
                )
            )
        return await _find_guest(cgroup, init.pid)

    def _listen(self, ref: str) -> socket.socket:
        path = self.layout.socket(ref)
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind(str(path))
            path.chmod(0o600)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener

    async def end(self, record: SandboxRecord) -> None:
        """Nothing of it runs and nothing of it is left but its volume; absent is success."""
        cgroup = self.cgroup(record.ref)
        cgroup.thaw()
        if record.machine and record.machine.boot_id == boot_id():
            await _kill(record.machine.init)
        self.on_step("end.killed")
        if record.runtime and not runtime.choose(record.runtime).joinable:
            argv = runtime.choose(record.runtime).delete_argv(self.layout.runtime_state, record.ref)
            await self.launch.run(argv, timeout=_BOOT_TIMEOUT_S)
        await self.sweep(record.ref)

    async def sweep(self, ref: str) -> None:
        """Remove what a machine leaves on the host, known or not."""
        await self.tunnels.forget(ref)
        cgroup = self.cgroup(ref)
        if cgroup.exists():
            await asyncio.to_thread(cgroup.kill)
            self.on_step("end.empty")
            await asyncio.to_thread(cgroup.remove)
        self.on_step("end.cgroup")
        runtime.forget(self.layout.runtime_state, ref)
        shutil.rmtree(self.layout.bundle(ref), ignore_errors=True)
        shutil.rmtree(self.layout.ports(ref), ignore_errors=True)
        self.layout.socket(ref).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Ready:
    """A bundle, and what the launcher has to mount for it."""

    directory: Path
    binds: list[Bind]
    ids: Ids | None
    cpus: Sequence[int] = ()
    """Those that it runs on."""


@dataclass(frozen=True, slots=True)
class Disk:
    """What a machine has as its disk: a volume, and what it only looks at."""

    volume: Path
    above: str = ""
    image: Image | None = None
    """Processes that go on instead of a first one that begins."""


def _limit_mounts(directory: Path) -> list[dict[str, Any]]:
    return [
        bundle.bind(str(directory / _LIMITS / name), place, "ro")
        for name, place in visible_limits.PLACES.items()
    ]


def shown_as(ref: str) -> str:
    """The name of the machine that shows the disk of a sandbox."""
    return f"{ref}-disk"


async def _find_guest(cgroup: Cgroup, init: int) -> Process:
    """The guest: the only child of the sandbox's init.

    The processes by which it came in have their parents outside, and what it has started already
    is below itself.
    """
    for _ in range(500):
        children = [process for process in _processes(cgroup) if _parent(process.pid) == init]
        if len(children) == 1 and children[0].alive():
            return children[0]
        await asyncio.sleep(0.001)
    raise Broken(f"{cgroup.path} has {len(children)} children of its first process, not one guest")


def _processes(cgroup: Cgroup) -> Iterator[Process]:
    for pid in cgroup.pids():
        with contextlib.suppress(ProcessLookupError):
            yield Process.of(pid)


def _parent(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def guest_env(record: SandboxRecord) -> dict[str, str]:
    """What every command in it finds in its environment, whoever asks for the command."""
    return {**host_layer.TRUST_ENV, **record.env}


def guest_config(record: SandboxRecord) -> dict[str, object]:
    """The fields of the guest's configuration that the sandbox's record decides."""
    return {
        "sandbox_id": record.ref,
        "token": record.token,
        "env": guest_env(record),
        "user": record.user,
        "workdir": record.workdir,
        "state_dir": bundle.GUEST_STATE,
    }


async def _kill(process: Process) -> None:
    """End a process and wait for it; with the first of a namespace all others in it end too."""
    with contextlib.suppress(ProcessLookupError), process.opened() as descriptor:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        await _readable(descriptor, 10.0)


async def _readable(descriptor: int, timeout: float) -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    loop.add_reader(descriptor, finish)
    try:
        await asyncio.wait_for(done, timeout)
    except TimeoutError as error:
        raise Unavailable("a sandbox's first process did not end when killed") from error
    finally:
        loop.remove_reader(descriptor)
