"""The one public port: previews and the API behind the same front."""

import asyncio
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from paddock import telemetry
from paddock.domain.errors import InvalidRequest, Unavailable
from paddock.interfaces.api.app import create_app
from paddock.interfaces.api.context import Services
from paddock.interfaces.api.serving import serving
from paddock.interfaces.e2b import app as e2b
from paddock.interfaces.e2b.app import Beside
from paddock.interfaces.e2b.door import SandboxDoor
from paddock.interfaces.preview import Front, FrontConfig, Resolve
from paddock.interfaces.preview.door import Door
from paddock.interfaces.preview.known_hosts import KnownHosts
from paddock.settings import ServerConfig

_LONGEST_SOCKET_PATH = 107
_IDLE_S = 640.0
"""Longer than clients keep a connection for later: one that is closed just when they use it again
costs them a request that they dare not repeat."""


@asynccontextmanager
async def listening(config: ServerConfig, services: Services) -> AsyncIterator[str]:
    """The public address: the front there, and the API behind it on a socket of its own."""
    async with AsyncExitStack() as stack:
        inner = stack.enter_context(_inner_socket(config.data_dir))
        warm = ("/healthz", "/health")
        await stack.enter_async_context(serving(_application(services), inner, warm))

        async def api() -> socket.socket:
            connection = socket.socket(socket.AF_UNIX)
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, str(inner))
            return connection

        domain = config.preview_domain
        own_host = urlsplit(config.public_url).hostname or ""
        previews = Door(services.previews, domain, api, own_host=own_host)
        door: Resolve = SandboxDoor(services.e2b.passages, domain, previews, api)
        if services.anyone is not None:
            door = KnownHosts(door, domain, own_host)
        limits = FrontConfig(
            trusted_proxies=config.trusted_proxies,
            public_url=config.public_url,
            idle_timeout_s=_IDLE_S,
        )
        front = await stack.enter_async_context(Front(door, limits))
        tls = _tls(config)
        try:
            host, port = await front.listen(config.host, config.port)
        except OSError as error:
            raise _taken(config, error) from error
        if tls is not None:
            try:
                await front.listen(config.host, config.tls_port, tls)
            except OSError as error:
                raise _taken(replace(config, port=config.tls_port), error) from error
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{port}"


def _application(services: Services) -> ASGIApp:
    """Our own API, and E2B's beside it."""

    def observe(method: str, route: str, status: int, seconds: float) -> None:
        telemetry.observe_request(method, route, status, seconds)
        services.metrics.observe_request(method, route, status, seconds)

    bind = telemetry.within_request
    return Beside(create_app(services, observe, bind), e2b.create_app(services, observe, bind))


def _tls(config: ServerConfig) -> ssl.SSLContext | None:
    if config.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(config.tls_certificate, config.tls_key)
    except OSError as error:  # what OpenSSL cannot read is one as well
        raise InvalidRequest(
            f"the certificate {config.tls_certificate} cannot be used: {error}",
            remediation="set server.tls_certificate and server.tls_key to PEM files that belong "
            "together",
        ) from error
    context.set_alpn_protocols(["http/1.1"])
    return context


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
