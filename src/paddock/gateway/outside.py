"""The world outside: what names mean there, and connections to addresses that were checked."""

import asyncio
import ipaddress
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

from paddock.domain.egress import addresses, names
from paddock.domain.egress.rule import Rule
from paddock.gateway import routes
from paddock.gateway.lookups import Lookups, Turns

_CONNECT_S = 10.0
_FRESH_S = 5.0
_MOST_CACHED = 4096


class Unreachable(Exception):
    """The place may be connected to, but cannot be."""


class Closed(Exception):
    """The place may not be connected to, for what its address is."""


class Outside:
    """Seen from the host that the gateway runs on."""

    def __init__(self) -> None:
        self.hosts: dict[str, str] = {}
        self.closed_ports: frozenset[int] = frozenset()
        self.trust = _strict()
        self._lookups = Lookups()
        self._cache: dict[str, tuple[float, list[str]]] = {}

    async def dial(
        self,
        rules: Sequence[Rule],
        place: tuple[str, int],
        protocol: Callable[[], asyncio.Protocol],
        *,
        turns: Turns | None = None,
        verified: bool = False,
        trusted: bool = False,
    ) -> tuple[asyncio.Transport, str]:
        """A connection to a name or address, and the address that it is to. Names are looked up
        within the turns of whose connection it is.

        `verified` is by TLS, with who has proved to be the host of that name. `trusted` is for a
        place that an operator has named, which may be private or this host.
        """
        host, port = place
        tls: dict[str, Any] = {"ssl": self.trust, "server_hostname": host} if verified else {}
        found = await self._resolve(host, turns or Turns())
        literal = not names.normal(host)
        if why := self.objection(rules, found, port, literal=literal, trusted=trusted):
            raise Closed(why)
        loop, problem = asyncio.get_running_loop(), ""
        for address in found:
            try:
                async with asyncio.timeout(_CONNECT_S):
                    transport, _ = await loop.create_connection(protocol, address, port, **tls)
            except ssl.SSLCertVerificationError as error:
                raise Unreachable(
                    f"what answers at {host}:{port} does not prove to be it "
                    f"({error.verify_message}), so it is given no credential"
                ) from error
            except (OSError, TimeoutError) as error:
                problem = str(error) or f"{address} did not answer for {_CONNECT_S:.0f} s"
                continue
            return transport, address
        raise Unreachable(f"{host}:{port} could not be connected to: {problem}")

    def objection(
        self,
        rules: Sequence[Rule],
        found: Sequence[str],
        port: int,
        *,
        literal: bool,
        trusted: bool = False,
    ) -> str:
        own = frozenset(address for address in found if _is_of_this_host(address))
        if own and port in self.closed_ports:
            return f"port {port} of this host is Paddock's own, which no rule can allow"
        if trusted:
            rules = [*rules, *(_opening(address, port) for address in found)]
        return addresses.objection(rules, found, port, own=own, literal=literal)

    def objection_known(self, rules: Sequence[Rule], host: str, port: int) -> str:
        """As far as it can be told without asking anybody."""
        literal = not names.normal(host)
        address = self.hosts.get(host, host if literal else "")
        return self.objection(rules, [address], port, literal=literal) if address else ""

    async def _resolve(self, host: str, turns: Turns) -> list[str]:
        if host in self.hosts:
            return [self.hosts[host]]
        cached = self._cache.get(host)
        if cached is not None and cached[0] > time.monotonic():
            return cached[1]
        try:
            found = await self._lookups.addresses_of(host, turns)
        except TimeoutError as error:
            raise Unreachable(f"no name server said in time what {host} is") from error
        except OSError as error:
            raise Unreachable(f"the name {host} is not known outside: {error}") from error
        if len(self._cache) >= _MOST_CACHED:
            self._cache.clear()
        self._cache[host] = (time.monotonic() + _FRESH_S, found)
        return found


def _opening(address: str, port: int) -> Rule:
    """Comes after all others, so that what is denied stays closed."""
    network, ports = ipaddress.ip_network(address), ((port, port),)
    return Rule(allows=True, network=network, ports=ports, text=address, by_operator=True)


def _strict() -> ssl.SSLContext:
    """Nobody is trusted until it is said who is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    return context


def trusting(authorities: str) -> ssl.SSLContext:
    """Servers that one of these has vouched for."""
    context = _strict()
    context.load_verify_locations(cadata=authorities)
    return context


def _is_of_this_host(text: str) -> bool:
    """Whether the address, or one embedded in it (such as IPv4-mapped), belongs to this host."""
    address = ipaddress.ip_address(text)
    return any(routes.ends_here(each) for each in {address, addresses.plain(address)})
