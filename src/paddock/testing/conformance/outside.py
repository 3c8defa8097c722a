"""What lies outside of a sandbox: this host, and a machine next to it."""

import asyncio
import contextlib
import fcntl
import ipaddress
import os
import random
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import chain
from pathlib import Path

Address = tuple[str, int]
Outside = Callable[[], AbstractAsyncContextManager[Address]]

_RANDOM = random.SystemRandom()
_BLOCKS = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
"""Those kept for documentation (RFC 5737); a host may have one of them all the same."""

# Runs in a network namespace of its own and says on which port it listens.
_LISTENER = """
import socket
server = socket.create_server(("0.0.0.0", 0), backlog=16)
print(server.getsockname()[1], flush=True)
while True:
    caller = server.accept()[0]
    try:
        caller.sendall(b"neighbour\\n")
    except OSError:
        pass
    caller.close()
"""


@asynccontextmanager
async def neighbour() -> AsyncIterator[Address]:
    """A listener that this host routes to but that is not this host, and greets; needs root.

    The host itself would be the wrong target: an open sandbox is not meant to reach it.
    """
    child = await asyncio.create_subprocess_exec(
        "unshare", "--net", sys.executable, "-c", _LISTENER, stdout=asyncio.subprocess.PIPE
    )
    try:
        if child.stdout is None:
            raise OSError("no pipe to the neighbour")
        line = await child.stdout.readline()
        if not line:
            raise PermissionError(
                "a neighbour needs root and unshare(1); set Terms.outside to `internet(...)`"
            )
        yield await _connected(child.pid), int(line)
    finally:
        # The cable goes with the namespace, and the namespace with its only process.
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def _connected(pid: int) -> str:
    """Lay a cable into the namespace."""
    cable = f"pdkout{pid:x}"
    with addresses_locked():
        here, there = spare_addresses(Path("/proc/net/route").read_text())
        await _run(f"ip link add {cable} type veth peer name eth0 netns {pid}")
        await _run(f"ip address add {here}/30 dev {cable}")
        await _run(f"ip link set {cable} up")
    enter = f"nsenter --target {pid} --net"
    await _run(f"{enter} ip address add {there}/30 dev eth0")
    await _run(f"{enter} ip link set eth0 up")
    await _run(f"{enter} ip route add default via {here}")
    return there


@contextlib.contextmanager
def addresses_locked() -> Iterator[None]:
    """Let one process at a time take addresses: no route shows them until the link is up."""
    with Path("/run/paddock-cable.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def spare_addresses(routes: str) -> tuple[str, str]:
    """For the two ends of a cable: of a /30 that nothing in `/proc/net/route` leads to."""
    rows = [line.split() for line in routes.splitlines()[1:]]
    taken = [_network(row[1], row[7]) for row in rows if row[7] != "00000000"]
    blocks = [ipaddress.IPv4Network(block).subnets(new_prefix=30) for block in _BLOCKS]
    free = [each for each in chain(*blocks) if not any(each.overlaps(other) for other in taken)]
    if not free:
        raise OSError(f"all of {', '.join(_BLOCKS)} is in use on this host")
    chosen = _RANDOM.choice(free)
    return str(chosen[1]), str(chosen[2])


def _network(address: str, mask: str) -> ipaddress.IPv4Network:
    """Both as the kernel shows them: in hexadecimal, in the order of this machine."""
    plain, width = (socket.ntohl(int(each, 16)) for each in (address, mask))
    return ipaddress.IPv4Network((plain & width, width.bit_count()))


async def _run(command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command.split(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise OSError(f"`{command}` failed: {output.decode(errors='replace').strip()}")


def internet(host: str, port: int = 443) -> Outside:
    """A public address, for providers that run their sandboxes elsewhere."""

    @asynccontextmanager
    async def somewhere() -> AsyncIterator[Address]:
        yield host, port

    return somewhere


@asynccontextmanager
async def listener_here() -> AsyncIterator[Address]:
    """A listener on every address of this host."""

    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    listener = socket.create_server(("", 0), family=family, dualstack_ipv6=both)
    server = await asyncio.start_server(greet, sock=listener)
    try:
        yield addresses_here()[0], int(listener.getsockname()[1])
    finally:
        server.close()
        await server.wait_closed()


def addresses_here() -> list[str]:
    """What others call this host, then what it calls itself; nothing is sent to find out."""
    found = []
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            found.append(str(probe.getsockname()[0]))
    return [*found, "127.0.0.1", "::1"]


def processes_here(marker: str) -> list[int]:
    """Processes that this host sees and whose command line carries the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if marker.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found
