"""The listener, and everything that belongs to its being open."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from weakref import WeakSet

import asyncssh

from paddock.interfaces.ssh.config import GatewayLimits
from paddock.interfaces.ssh.doorkeeper import Doorkeeper
from paddock.interfaces.ssh.hall import Hall
from paddock.interfaces.ssh.visitor import Visitor
from paddock.ports.clock import Clock
from paddock.services.ssh_access import SshAccesses
from paddock.services.ssh_visits import SshVisits

_WINDOW = 2 << 20
_PACKET = 32 << 10
_CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
)
"""Those that the processor does by itself go first: they are twice as fast."""


@asynccontextmanager
async def gateway(
    address: tuple[str, int],
    key: asyncssh.SSHKey,
    *,
    accesses: SshAccesses,
    visits: SshVisits,
    clock: Clock,
    limits: GatewayLimits | None = None,
) -> AsyncIterator[int]:
    """Open until the block ends; the port that it has. OSError when it cannot have that."""
    limits = limits or GatewayLimits()
    # It would log user names, and a user name may be a token.
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    hall = Hall(accesses, limits.look_every_s)
    doorkeeper = Doorkeeper(limits, clock)

    everybody: WeakSet[Visitor] = WeakSet()

    def visitor() -> Visitor:
        made = Visitor(accesses, visits, limits=limits, doorkeeper=doorkeeper, hall=hall)
        everybody.add(made)
        return made

    acceptor = await _listen(address, key, visitor, limits)
    keeping = asyncio.create_task(hall.keep(), name="ssh visitors")
    try:
        yield acceptor.get_port()
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        acceptor.close()
        await hall.close(limits.closing_s)
        for each in everybody:
            each.abort()


async def _listen(
    address: tuple[str, int],
    key: asyncssh.SSHKey,
    visitor: Callable[[], Visitor],
    limits: GatewayLimits,
) -> asyncssh.SSHAcceptor:
    return await asyncssh.listen(
        *address,
        server_factory=visitor,
        server_host_keys=[key],
        server_version="Paddock",
        encoding=None,
        line_editor=False,
        kbdint_auth=False,
        host_based_auth=False,
        gss_host=None,
        agent_forwarding=False,
        x11_forwarding=False,
        compression_algs=None,
        encryption_algs=_CIPHERS,
        login_timeout=limits.login_s,
        keepalive_interval=limits.keepalive_s,
        keepalive_count_max=limits.keepalives,
        window=_WINDOW,
        max_pktsize=_PACKET,
    )
