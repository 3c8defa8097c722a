"""The open network: a bridge of this installation, one cable to each sandbox that asks for it.

A sandbox without it has loopback only. With it, it reaches what the host can route to, but not
the host itself, not its neighbours, and no link-local address (where clouds keep their metadata).
"""

import asyncio
import fcntl
import ipaddress
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from paddock.domain.errors import Broken, LimitExceeded, Unavailable

_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


@dataclass(frozen=True, slots=True)
class OpenNetwork:
    """Names and numbers of one installation's bridge."""

    tag: str
    """Eight hexadecimal digits that tell installations apart."""
    subnet: ipaddress.IPv4Network
    lock: Path

    @property
    def bridge(self) -> str:
        return f"pdk{self.tag}"

    @property
    def table(self) -> str:
        return f"paddock_{self.tag}"

    @property
    def gateway(self) -> ipaddress.IPv4Address:
        return self.subnet[1]

    def address(self, number: int) -> ipaddress.IPv4Address:
        """Of the sandbox with this number, counted from 0."""
        if number + 3 >= self.subnet.num_addresses:
            raise LimitExceeded(
                f"the open network {self.subnet} is full",
                remediation="destroy sandboxes, or set a larger local.open_subnet",
            )
        return self.subnet[number + 2]

    def cable(self, number: int) -> str:
        return f"pk{self.tag[:6]}{number:x}"

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """One process at a time changes the bridge."""
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.002)
            yield
        finally:
            os.close(descriptor)

    async def attach(self, pid: int, number: int) -> None:
        """Connect the network namespace of a process; the cable goes when the namespace goes."""
        if not Path(f"/sys/class/net/{self.bridge}").exists():
            await self._build()
        cable, bits = self.cable(number), self.subnet.prefixlen
        await _ip(
            f"link add {cable} type veth peer name eth0 netns {pid}",
            f"link set {cable} master {self.bridge} up",
            f"link set {cable} type bridge_slave isolated on",
        )
        inside = (
            f"address add {self.address(number)}/{bits} dev eth0",
            "link set eth0 up",
            f"route add default via {self.gateway}",
        )
        await _ip(*inside, enter=pid)

    async def detach(self, number: int) -> None:
        """Absent is success."""
        if Path(f"/sys/class/net/{self.cable(number)}").exists():
            await _ip(f"link delete {self.cable(number)}")

    async def remove(self) -> None:
        """Take the bridge and its rules away; absent is success."""
        if Path(f"/sys/class/net/{self.bridge}").exists():
            await _ip(f"link delete {self.bridge}")
        await _run(["nft", "-f", "-"], f"table inet {self.table}\ndelete table inet {self.table}\n")

    async def _build(self) -> None:
        await _ip(
            f"link add {self.bridge} type bridge",
            f"address add {self.gateway}/{self.subnet.prefixlen} dev {self.bridge}",
            f"link set {self.bridge} up",
        )
        await _run(["nft", "-f", "-"], _rules(self.table, self.bridge, str(self.subnet)))
        if _FORWARD.read_text().strip() != "1":
            _FORWARD.write_text("1")


def _rules(table: str, bridge: str, subnet: str) -> str:
    return f"""
table inet {table}
delete table inet {table}
table inet {table} {{
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname "{bridge}" ct state established,related accept
    iifname "{bridge}" icmp type echo-request accept
    iifname "{bridge}" reject
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname "{bridge}" ip daddr 169.254.0.0/16 reject
    iifname "{bridge}" oifname "{bridge}" reject
    iifname "{bridge}" accept
    oifname "{bridge}" ct state established,related accept
    oifname "{bridge}" reject
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {subnet} oifname != "{bridge}" masquerade
  }}
}}
"""


async def _ip(*commands: str, enter: int | None = None) -> None:
    argv = ["ip", "-batch", "-"]
    if enter is not None:
        argv = ["nsenter", "-t", str(enter), "-n", *argv]
    await _run(argv, "".join(f"{command}\n" for command in commands))


async def _run(argv: Sequence[str], text: str) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except FileNotFoundError as error:
        raise Unavailable(
            f"{argv[0]} is not installed, and an open network needs it",
            remediation="`apt-get install iproute2 nftables util-linux`",
        ) from error
    output, _ = await process.communicate(text.encode())
    if process.returncode != 0:
        raise Broken(f"the open network could not be set up: {output.decode().strip()}")
