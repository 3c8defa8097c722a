"""The ports that this process itself listens on, whoever in it opened them."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from paddock.domain.errors import PaddockError
from paddock.ports.egress import FlowSource

_log = logging.getLogger(__name__)
_LISTENS = "0A"
_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")


async def close_own_ports(gateways: Mapping[str, FlowSource]) -> None:
    """No sandbox reaches them, also where the system chose the port."""
    for name, gateway in gateways.items():
        try:
            await gateway.close_ports(own_ports())
        except PaddockError as error:
            # Without a gateway sandboxes reach nothing, and the next one is told when it begins.
            told = {"of": name, "why": error.message}
            _log.warning("egress gateway not told of ports", extra=told)


def own_ports() -> frozenset[int]:
    """Asked of the kernel, so that no listener can be forgotten here."""
    mine = set(_sockets())
    return frozenset(port for port, socket in _listening() if socket in mine)


def _sockets() -> Iterator[str]:
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                yield target.removeprefix("socket:[").removesuffix("]")


def _listening() -> Iterator[tuple[int, str]]:
    for line in (line for table in _TABLES for line in _lines(table)):
        _, local, _, state, *rest = line.split()
        if state == _LISTENS:
            yield int(local.rpartition(":")[2], 16), rest[5]


def _lines(table: str) -> list[str]:
    try:
        return Path(table).read_text().splitlines()[1:]
    except FileNotFoundError:
        return []  # a host without IPv6
