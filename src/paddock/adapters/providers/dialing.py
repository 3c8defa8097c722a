"""Connections to ports of sandboxes: in a network namespace of this host, or at an address."""

import asyncio
import socket
from urllib.parse import urlsplit

from paddock.adapters.providers.host import netns
from paddock.adapters.providers.host.processes import Process
from paddock.ports.provider import Endpoint

_LOOPBACKS = ("127.0.0.1", "::1")


async def dial(endpoint: Endpoint) -> socket.socket:
    """The port's `Dialer`."""
    if endpoint.netns_pid is not None and endpoint.netns_started is not None:
        inside = Process(endpoint.netns_pid, endpoint.netns_started)
        try:
            return await netns.connect(inside, _LOOPBACKS[0], endpoint.port)
        except ConnectionRefusedError:
            # Node's servers on `localhost` often listen on IPv6 only.
            return await netns.connect(inside, _LOOPBACKS[1], endpoint.port)
    where = urlsplit(endpoint.url)
    port = where.port or (443 if where.scheme == "https" else 80)
    return await _connect(where.hostname or "", port)


async def _connect(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = ConnectionRefusedError(f"nothing at {host}:{port}")
    for family, kind, protocol, _, address in found:
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, address)
        except OSError as error:
            connection.close()
            failure = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise failure
