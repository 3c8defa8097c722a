"""A guest that is started by the image's own Python, for engines that are elsewhere.

The guest is the container's first process and listens on a socket inside it; a tunnel leads there.
"""

import asyncio
import io
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from paddock.adapters.providers.docker.attach import Attached
from paddock.adapters.providers.docker.container import GUEST_STATE, MainProcess
from paddock.adapters.providers.docker.contract import closed_archive
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.place import Place
from paddock.adapters.providers.docker.records import Container
from paddock.adapters.providers.tunnel import RELAY_ARGV, Tunnel
from paddock.domain.guest import GuestAddress
from paddock.guest import pack
from paddock.guest_client import Guest

TOO_OLD = 93
NOT_FOUND = (126, 127)
_DIRECTORY = "opt/paddock"
_SOCKET = "/run/paddock-guest.sock"
# Says by its exit code what no message could: the log of a sandbox goes nowhere.
_BOOTSTRAP = f"""\
import sys
sys.argv[:1] = []
if sys.version_info < (3, 9):
    sys.exit({TOO_OLD})
import runpy
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass
class PackedGuests:
    """Puts guests into containers anywhere, as one zip file."""

    place: Place
    engine: Engine
    _tunnels: dict[str, Tunnel] = field(default_factory=dict)
    _zip: bytes = b""
    _building: asyncio.Lock = field(default_factory=asyncio.Lock)

    def main(self) -> MainProcess:
        return MainProcess(
            (
                *("python3", "-I", "-S", "-c", _BOOTSTRAP),
                f"/{_DIRECTORY}/guest.zip",
                f"--socket={_SOCKET}",
                f"--state-dir={GUEST_STATE}",
                f"--token-file=/{_DIRECTORY}/token",
                f"--env-file=/{_DIRECTORY}/env",
            )
        )

    async def prepare(self, container: Container) -> None:
        """Put the guest and what it is told into a container that is not running."""
        defaults = container.record.defaults
        # Values of several lines do not fit into this file; they are told when the guest answers.
        lines = (f"{name}={value}\n" for name, value in defaults.env.items())
        simple = "".join(line for line in lines if len(line.splitlines()) == 1)
        files = {
            "guest.zip": (0o644, await self._packed()),
            "token": (0o600, container.record.token.encode()),
            "env": (0o600, simple.encode("utf-8", "surrogateescape")),
        }
        await self.engine.send(
            "PUT",
            f"containers/{container.id}/archive",
            f"put the guest into container {container.name}",
            data=io.BytesIO(_archive(files)),
            query={"path": "/"},
        )

    async def enter(self, container: Container) -> None:
        """It is in already: it is what the container runs."""

    async def introduce(self, container: Container, guest: Guest) -> None:
        """Tell it what its command line and its files could not."""
        defaults = container.record.defaults
        await guest.init(
            env=dict(defaults.env),
            sandbox_id=container.id,
            user=defaults.user,
            workdir=defaults.workdir,
        )

    async def address(self, container: Container) -> GuestAddress:
        path = str(self.place.tunnel_socket(container.id))
        await self._tunnel(container.id).listen_unix(path, f"unix:{_SOCKET}")
        return GuestAddress(socket=path, token=container.record.token)

    async def url(self, container: Container, port: int) -> str:
        """A port of the sandbox on this host's loopback."""
        return f"http://127.0.0.1:{await self._tunnel(container.id).listen_tcp(f'tcp:{port}')}"

    def is_alive(self, container: Container) -> bool:
        """The container ends with its guest, so one that runs has a guest."""
        return True

    async def forget(self, container: str) -> None:
        if (tunnel := self._tunnels.pop(container, None)) is not None:
            await tunnel.aclose()
        self.place.tunnel_socket(container).unlink(missing_ok=True)

    async def aclose(self) -> None:
        for container in tuple(self._tunnels):
            await self.forget(container)

    def _tunnel(self, container: str) -> Tunnel:
        if container not in self._tunnels:
            self._tunnels[container] = Tunnel(
                lambda: Attached.start(self.engine, container, RELAY_ARGV)
            )
        return self._tunnels[container]

    async def _packed(self) -> bytes:
        async with self._building:
            if not self._zip:
                target = self.place.run / f"guest-{self.place.owner.id}.zip"
                try:
                    await asyncio.to_thread(pack.build, str(target))
                    self._zip = target.read_bytes()
                finally:
                    target.unlink(missing_ok=True)
            return self._zip


def _archive(files: dict[str, tuple[int, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for part in (Path(_DIRECTORY).parent, Path(_DIRECTORY)):
            directory = tarfile.TarInfo(str(part))
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(directory)
        for name, (mode, content) in files.items():
            entry = tarfile.TarInfo(f"{_DIRECTORY}/{name}")
            entry.mode, entry.size = mode, len(content)
            archive.addfile(entry, io.BytesIO(content))
        return closed_archive(archive, buffer)
