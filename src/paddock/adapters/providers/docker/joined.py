"""A guest that comes in from this host: the container runs a reaper, the guest is forked into it.

The image needs no Python. The container's first process does nothing but reap, so the guest enters
before anything untrusted runs. It listens on a socket of this host and outlives the control plane.
"""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paddock.adapters.providers.docker import container as containers
from paddock.adapters.providers.docker import trust
from paddock.adapters.providers.docker.container import MainProcess
from paddock.adapters.providers.docker.place import Place
from paddock.adapters.providers.docker.records import Container
from paddock.adapters.providers.host import capabilities
from paddock.adapters.providers.host.cgroups import Cgroup, Hierarchies, host_hierarchies
from paddock.adapters.providers.host.init import INIT
from paddock.adapters.providers.host.launch_control import LaunchControl
from paddock.adapters.providers.host.processes import Process
from paddock.domain.errors import Broken
from paddock.domain.guest import GuestAddress
from paddock.guest_client import Guest

_BACKLOG = 512
_PACKED_INSTEAD = "set docker.guest to packed"


@dataclass(frozen=True, slots=True)
class JoinedGuests:
    """Puts guests into the containers of an engine on this host."""

    place: Place
    launch: LaunchControl
    init: str
    """The static first process, as a path on the host."""
    nofile: int
    authority: str = ""
    """The installation's own, in PEM, where its gateway looks into TLS."""

    def main(self) -> MainProcess:
        return MainProcess((INIT, "-P"), (containers.bind(self.init, INIT),))

    async def prepare(self, container: Container) -> None:
        """Nothing has to be in the container before it starts."""

    async def enter(self, container: Container) -> None:
        """Fork the guest into a container that has just been started."""
        init = first_process(container)
        cgroup = control_group(container)
        trusting = await asyncio.to_thread(trust.establish, init, self.authority)
        with self._listen(container.id) as listener:
            await self.launch.join(
                listener,
                init,
                cgroup,
                config=_config(container, trusting),
                capabilities=capabilities.numbers(tuple(containers.capability_names())),
                no_new_privs=True,
                nofile=self.nofile,
            )

    async def introduce(self, container: Container, guest: Guest) -> None:
        """It was told everything when it came in."""

    async def address(self, container: Container) -> GuestAddress:
        path = self.place.socket(container.id)
        return GuestAddress(socket=str(path), token=container.record.token)

    def is_alive(self, container: Container) -> bool:
        """Whether somebody holds the socket: the guest does, and nobody else."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
            try:
                probe.connect(str(self.place.socket(container.id)))
            except BlockingIOError:
                return True  # so many are waiting that there must be somebody to wait for
            except OSError:
                return False
        return True

    def oom_kills(self, container: Container) -> int:
        """While the container runs; afterwards the kernel has forgotten, and the engine knows."""
        try:
            return control_group(container).oom_kills()
        except Broken:
            return 0

    async def forget(self, container: str) -> None:
        self.place.socket(container).unlink(missing_ok=True)

    async def aclose(self) -> None:
        await self.launch.aclose()

    def _listen(self, container: str) -> socket.socket:
        path = self.place.socket(container)
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


def _config(container: Container, trusting: Mapping[str, str]) -> dict[str, object]:
    """The fields of the guest's configuration that the sandbox's record decides."""
    defaults = container.record.defaults
    return {
        "sandbox_id": container.id,
        "token": container.record.token,
        "env": {**trusting, **defaults.env},
        "user": defaults.user,
        "workdir": defaults.workdir,
        "state_dir": containers.GUEST_STATE,
    }


def first_process(container: Container) -> Process:
    """The container's own, and none that was given its number later."""
    try:
        process = Process.of(container.pid)
    except ProcessLookupError as error:
        raise _not_seen(container) from error
    control_group(container)  # says so when the number is somebody else's by now
    return process


def _not_seen(container: Container) -> Broken:
    return Broken(
        f"process {container.pid} of container {container.name} is not seen on this host",
        remediation=_PACKED_INSTEAD,
    )


def control_group(
    container: Container, host: Hierarchies | None = None, proc: Path = Path("/proc")
) -> Cgroup:
    """The container's own control groups, where the kernel says they are.

    An engine may itself live in a group, and then in another one in each hierarchy.
    """
    host = host or host_hierarchies()
    try:
        lines = (proc / str(container.pid) / "cgroup").read_text().splitlines()
    except OSError as error:
        raise _not_seen(container) from error
    paths = {
        controllers: path.lstrip("/")
        for _, controllers, path in (line.split(":", 2) for line in lines)
    }
    if not any(container.id in path for path in paths.values()):
        raise Broken(
            f"process {container.pid} on this host does not belong to container {container.name}: "
            "the engine runs elsewhere",
            remediation=_PACKED_INSTEAD,
        )
    if host.unified is not None:
        return Cgroup(Hierarchies(host.unified / paths[""]), "")
    v1 = tuple(
        (names, root / path)
        for names, root in host.v1
        for controllers, path in paths.items()
        if names & set(controllers.split(","))
    )
    return Cgroup(Hierarchies(None, v1), "")
