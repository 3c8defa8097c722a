"""Connections to ports of sandboxes: in a network namespace, by a socket, or at an address."""

import asyncio
import socket
from typing import Any
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
    if endpoint.socket:
        return await _try(socket.socket(socket.AF_UNIX), endpoint.socket)
    where = urlsplit(endpoint.url)
    port = where.port or (443 if where.scheme == "https" else 80)
    return await _connect(where.hostname or "", port)


async def _connect(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = ConnectionRefusedError(f"nothing at {host}:{port}")
    for family, kind, protocol, _, address in found:
        try:
            return await _try(socket.socket(family, kind, protocol), address)
        except OSError as error:
            failure = error
    raise failure


async def _try(connection: socket.socket, address: Any) -> socket.socket:
    connection.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection
