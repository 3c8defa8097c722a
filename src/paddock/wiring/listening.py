"""The one public port: previews and the API behind the same front."""

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from paddock import telemetry
from paddock.domain.errors import Unavailable
from paddock.interfaces.api.context import Services
from paddock.interfaces.api.serving import serving
from paddock.interfaces.preview import Front, FrontConfig
from paddock.interfaces.preview.door import Door
from paddock.settings import ServerConfig

_LONGEST_SOCKET_PATH = 107


@asynccontextmanager
async def listening(config: ServerConfig, services: Services) -> AsyncIterator[str]:
    """The public address: the front there, and the API behind it on a socket of its own."""
    async with AsyncExitStack() as stack:
        inner = stack.enter_context(_inner_socket(config.data_dir))
        await stack.enter_async_context(
            serving(services, inner, telemetry.observe_request, telemetry.within_request)
        )

        async def api() -> socket.socket:
            connection = socket.socket(socket.AF_UNIX)
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, str(inner))
            return connection

        own_host = urlsplit(config.public_url).hostname or ""
        door = Door(services.previews, config.preview_domain, api, own_host=own_host)
        limits = FrontConfig(trusted_proxies=config.trusted_proxies, public_url=config.public_url)
        front = await stack.enter_async_context(Front(door, limits))
        try:
            host, port = await front.listen(config.host, config.port)
        except OSError as error:
            raise _taken(config, error) from error
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{port}"


def check_free(config: ServerConfig) -> None:
    """Before anything is made: a place that is taken is found out at once."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            raise _taken(config, error) from error


def _taken(config: ServerConfig, error: OSError) -> Unavailable:
    return Unavailable(
        f"cannot listen on {config.host}:{config.port}: {error.strerror or error}",
        remediation="is it running already? choose another with --port",
    )


@contextmanager
def _inner_socket(data: Path) -> Iterator[Path]:
    """In the data directory, where a start after a crash finds and replaces it.

    Whoever connects there is believed about where a request comes from, so it is for the front
    alone. The server lets everybody write to its socket, and the local provider lets everybody
    through the data directory: only a directory of its own keeps others out.
    """
    (data / "api.sock").unlink(missing_ok=True)  # where it was before
    private = data.absolute() / "api"
    place = private / "api.sock"
    if len(bytes(place)) <= _LONGEST_SOCKET_PATH:
        private.mkdir(mode=0o700, exist_ok=True)
        private.chmod(0o700)
        place.unlink(missing_ok=True)
        yield place
        place.unlink(missing_ok=True)
        return
    with tempfile.TemporaryDirectory(prefix="paddock-") as short:
        yield Path(short) / "api.sock"
