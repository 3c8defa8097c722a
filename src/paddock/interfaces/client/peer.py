"""Checks which user's process answers a loopback connection, according to the kernel."""

import asyncio
import ipaddress
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from paddock.domain.errors import Unauthenticated

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_ACCEPT_S = 5.0
_PAUSE_S = 0.005


class OwnConnector(aiohttp.TCPConnector):
    """Connects only to servers of one user, for a token that only this user can read.

    Every user of a machine can listen on its loopback. A server of the token's owner could read the
    token's file anyway, so sending the token there reveals nothing. The check is made on the
    connection itself, before a byte is sent: after a check of the listener, another process could
    still take the port.
    """

    def __init__(self, owner: int, *, limit: int, keepalive_timeout: float) -> None:
        super().__init__(limit=limit, keepalive_timeout=keepalive_timeout)
        self._owner = owner
        self._checked: weakref.WeakSet[asyncio.BaseProtocol] = weakref.WeakSet()

    async def connect(
        self, req: "ClientRequest", traces: list["Trace"], timeout: aiohttp.ClientTimeout
    ) -> "Connection":
        connection = await super().connect(req, traces, timeout)
        try:
            await self._check(connection, str(req.url.origin()))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _check(self, connection: "Connection", url: str) -> None:
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None or protocol in self._checked:
            return  # a closed connection sends nothing
        here, there = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        if (found := await _accepted_by(there, here)) != self._owner:
            who = "another machine or container" if found is None else f"uid {found}"
            raise Unauthenticated(
                f"the admin token of this machine was not sent: {who} answers at {url}, but the "
                f"token belongs to a server with uid {self._owner}",
                remediation="set PADDOCK_TOKEN to a token of that server, or correct PADDOCK_URL",
            )
        self._checked.add(protocol)


async def _accepted_by(
    local: tuple[str, int], remote: tuple[str, int], within_s: float = _ACCEPT_S
) -> int | None:
    """Return the uid that accepted this connection; None if no process of this machine did."""
    at_server, at_client = _shown(*local[:2]), _shown(*remote[:2])
    deadline = asyncio.get_running_loop().time() + within_s
    while (found := _find(at_server, at_client)) is not None:
        uid, inode = found
        # Until a process accepts it, a connection has no inode and shows uid 0.
        if inode:
            return uid
        if asyncio.get_running_loop().time() >= deadline:
            return None
        await asyncio.sleep(_PAUSE_S)
    return None


def _find(local: frozenset[str], remote: frozenset[str]) -> tuple[int, int] | None:
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue  # a machine without IPv6, or without these tables
        for line in lines:
            fields = line.split()
            if fields[1] in local and fields[2] in remote:
                return int(fields[7]), int(fields[9])
    return None


def _shown(host: str, port: int) -> frozenset[str]:
    """Format an address as the tables do: words in host byte order, IPv4 also IPv6-mapped."""
    address = ipaddress.ip_address(host.partition("%")[0])
    forms = [address.packed]
    if isinstance(address, ipaddress.IPv4Address):
        forms.append(bytes(10) + b"\xff\xff" + address.packed)
    return frozenset(f"{_words(form)}:{port:04X}" for form in forms)


def _words(packed: bytes) -> str:
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
