"""A proxy between a jail and registries that checks addresses as the egress gateway does.

The proxy resolves, checks and opens every connection itself. So redirects, the `realm` that a
registry names and DNS names that change their address cannot lead anywhere else.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from paddock.adapters.egress import authority
from paddock.adapters.egress.config import EgressConfig
from paddock.domain.egress.rule import parse
from paddock.domain.errors import Forbidden
from paddock.domain.image_reference import RegistryImage
from paddock.gateway.brokered import Brokered
from paddock.gateway.fence import Fence
from paddock.gateway.inbound import Proxied
from paddock.gateway.journal import Journal
from paddock.gateway.outside import Outside
from paddock.gateway.protocol import RuleText

PROXY = ("127.0.0.2", 3128)
_ANYWHERE = ("*:*", "0.0.0.0/0:*", "[::/0]:*")
"""Public addresses need no rule by an operator; private ones do."""
_FURTHEST_RANGE = 16
_HTTPS = 443
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """Settings of operators for access to registries."""

    allowed: tuple[str, ...] = ()
    hosts: Mapping[str, str] = field(default_factory=dict)
    certificates: str = ""

    @classmethod
    def of(cls, config: EgressConfig) -> "RegistryAccess":
        return cls(config.registries, config.hosts, config.certificates)

    @property
    def listeners(self) -> tuple[tuple[str, int], ...]:
        """Addresses inside the jail of the proxy and of the loopback registries that are allowed.

        Go's HTTP client uses no proxy for loopback addresses. So a loopback registry has the same
        address inside as outside.
        """
        return (PROXY, *dict.fromkeys(self._loopback()))

    def _loopback(self) -> Iterator[tuple[str, int]]:
        for rule in map(parse, self.allowed):
            network = rule.network
            if not rule.allows or network is None or not network.is_loopback:
                continue
            narrow = [each for each in rule.ports if each[1] - each[0] < _FURTHEST_RANGE]
            for first, last in narrow if network.num_addresses == 1 else ():
                address = str(network.network_address)
                yield from ((address, port) for port in range(first, last + 1))

    def authorities(self) -> str:
        """Return the certificate authorities that registries are checked against, in PEM."""
        return authority.authorities(self.certificates)

    def check(self, image: RegistryImage) -> None:
        """Raise Forbidden if the image is refused, as far as that is known without a DNS query."""
        host = _LOOPBACK if image.host == "localhost" else image.host
        outside, rules = self._outside(), [parse(each) for each in (*self.allowed, *_ANYWHERE)]
        if why := outside.objection_known(rules, host, image.port or _HTTPS):
            raise refused(image, why)

    def _outside(self) -> Outside:
        outside = Outside()
        outside.hosts = dict(self.hosts)
        return outside

    @asynccontextmanager
    async def served(self) -> AsyncIterator[tuple[Journal, int]]:
        """Serve the listeners that are sent to the descriptor. The journal records refusals."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            async with self._serving(ours) as journal:
                yield journal, theirs.fileno()

    @asynccontextmanager
    async def _serving(self, channel: socket.socket) -> AsyncIterator[Journal]:
        journal = Journal()
        fence = Fence("an image", self._outside(), journal)
        allowed = [RuleText(each, "egress.registries", by_operator=True) for each in self.allowed]
        fence.set_rules([*allowed, *(RuleText(each, "images") for each in _ANYWHERE)])
        serving = asyncio.create_task(self._serve(channel, fence))
        try:
            yield journal
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
            fence.close()

    async def _serve(self, channel: socket.socket, fence: Fence) -> None:
        loop = asyncio.get_running_loop()
        servers: list[asyncio.Server] = []
        try:
            for number, listener in enumerate(await _received(channel, len(self.listeners))):
                made = partial(_client, _Loopback if number else Proxied, fence)
                servers.append(await loop.create_server(made, sock=listener))
            await loop.create_future()
        finally:
            for server in servers:
                server.close()


def _client(kind: type[Brokered], fence: Fence) -> asyncio.Protocol:
    return kind(fence).relay.client_side()


class _Loopback(Brokered):
    """A connection to a loopback port of this host, under the same address."""

    def _begin(self, transport: asyncio.BaseTransport) -> None:
        host, port = transport.get_extra_info("sockname")[:2]
        self.aim(self.fence.target(host, port))


async def _received(channel: socket.socket, most: int) -> list[socket.socket]:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(channel, ready.set_result, None)
    try:
        await ready
    finally:
        loop.remove_reader(channel)
    found = [socket.socket(fileno=each) for each in socket.recv_fds(channel, 1, most)[1]]
    for each in found:
        each.setblocking(False)
    return found


def refusals(journal: Journal) -> Sequence[str]:
    """Describe the refused connections, oldest first."""
    flows = [each for each in journal.drain(0).flows if not each.allowed]
    return [f"{each.host}:{each.port}: {each.why}" for each in flows]


def refused(image: RegistryImage, why: str) -> Forbidden:
    return Forbidden(
        f"the image {image} was refused: {why}",
        remediation="an operator can allow the registry's address in the setting egress.registries",
    )
