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

from paddock.adapters.providers.host import netns, open_network
from paddock.adapters.providers.host.input import readable
from paddock.adapters.providers.host.processes import Process
from paddock.adapters.providers.local import forwarding
from paddock.domain.errors import Broken, LimitExceeded, QuotaExceeded, Unavailable

_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
_IFF_UP = 1


@dataclass(frozen=True, slots=True)
class OpenNetwork:
    """Names and numbers of one installation's bridge."""

    tag: str
    """Eight hexadecimal digits that tell installations apart."""
    state: Path
    """A directory for the lock and for the subnet that was chosen."""
    wish: str = ""
    """The subnet an operator wants; empty takes a free one."""
    gateway_uid: int = 0
    """Whom the egress gateway runs as: no allowlist leads to a sandbox on this network."""

    @property
    def bridge(self) -> str:
        return f"pdk{self.tag}"

    @property
    def table(self) -> str:
        return f"paddock_{self.tag}"

    @property
    def subnet(self) -> ipaddress.IPv4Network:
        """The one in use, or the one that was asked for."""
        chosen = self.state / "subnet"
        return ipaddress.IPv4Network(chosen.read_text() if chosen.exists() else self.wish)

    @property
    def gateway(self) -> ipaddress.IPv4Address:
        return self.subnet[1]

    def address(self, number: int) -> ipaddress.IPv4Address:
        """Of the sandbox with this number, counted from 0."""
        subnet = self.subnet
        if number + 3 >= subnet.num_addresses:
            raise QuotaExceeded(
                f"the open network {subnet} is full",
                remediation="destroy sandboxes, or set a larger local.open_subnet",
            )
        return subnet[number + 2]

    def cable(self, number: int) -> str:
        return f"{self.cable_prefix}{number:x}"

    @property
    def cable_prefix(self) -> str:
        return f"pk{self.tag[:6]}"

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """One process at a time changes the bridge."""
        descriptor = os.open(self.state / "network", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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

    async def attach(self, process: Process, number: int) -> None:
        """Connect the network namespace of a process; the cable goes when the namespace goes."""
        try:
            with netns.opened(process) as namespace:
                await self._plug(namespace, number)
        except ProcessLookupError as error:
            raise Unavailable(f"a sandbox ended before it had its network: {error}") from error
        except PermissionError as error:
            raise Broken(f"a sandbox was not to be given its network: {error}") from error

    async def _plug(self, namespace: int, number: int) -> None:
        if not self._is_there():
            await self._build()
        # Each time, and before anything is plugged in: somebody may have flushed the host's rules.
        await self._fence()
        cable = self.cable(number)
        inside = f"/proc/self/fd/{namespace}"
        # The kernel takes down a dead sandbox's end of a cable in its own time.
        await self.detach(number)
        await _ip(
            f"link add {cable} type veth peer name eth0 netns {inside}",
            *self._plugged(cable),
            lend=(namespace,),
        )
        # The gateway is the only neighbour, and there is no link-local address. The kernel has one
        # neighbour table for the whole host, which a sandbox could fill otherwise.
        await _ip(
            f"address add {self.address(number)}/32 dev eth0",
            "link set eth0 addrgenmode none",
            "link set eth0 up",
            f"route add {self.gateway} dev eth0 scope link",
            f"route add default via {self.gateway}",
            prefix=("nsenter", f"--net={inside}"),
            lend=(namespace,),
        )

    async def _fence(self) -> None:
        await _run(["nft", "-f", "-"], self._rules())
        await asyncio.to_thread(forwarding.let_through, self.bridge)

    async def heal(self) -> bool:
        """Set up again what somebody has taken away since: the host's rules, also where others have
        begun to drop what they let through, as a Docker that is started later does; the host's
        forwarding; the bridge with the cables of all who are on it. Whether that was needed."""
        if await self._is_whole():
            return False
        async with self.held():
            if await self._is_whole():
                return False  # it was being changed by another process
            if not self._is_there():
                await self._lay()
            _let_forward()
            await self._fence()  # before anything is plugged in
            await _ip(
                f"link set {self.bridge} up",
                *(line for cable in self._loose() for line in self._plugged(cable)),
            )
            return True

    async def _is_whole(self) -> bool:
        if not self._is_there():
            return not self._cables()  # then nobody needs it
        return _is_up(self.bridge) and not self._loose() and _forwards() and await self._is_fenced()

    def _cables(self) -> list[str]:
        return [each.name for each in Path("/sys/class/net").glob(f"{self.cable_prefix}*")]

    def _loose(self) -> list[str]:
        """Cables that end nowhere."""
        masters = ((each, Path(f"/sys/class/net/{each}/master")) for each in self._cables())
        return [each for each, master in masters if not master.exists()]

    def _plugged(self, cable: str) -> tuple[str, ...]:
        return (
            f"link set {cable} master {self.bridge} up",
            f"link set {cable} type bridge_slave isolated on",
        )

    async def _is_fenced(self) -> bool:
        """Whether every rule of ours is still in force."""
        try:
            listed = await _run(["nft", "list", "table", "inet", self.table], "")
        except Broken:
            return False
        of_ours = [text.count(self.bridge) for text in (listed, self._rules())]
        return of_ours[0] == of_ours[1] and await asyncio.to_thread(
            forwarding.is_let_through, self.bridge
        )

    def _is_there(self) -> bool:
        return Path(f"/sys/class/net/{self.bridge}").exists()

    def _rules(self) -> str:
        return open_network.rules(self.table, self.bridge, str(self.subnet), self.gateway_uid)

    async def detach(self, number: int) -> None:
        """Absent is success; the kernel may be quicker, since the cable dies with the sandbox."""
        device = Path(f"/sys/class/net/{self.cable(number)}")
        if not device.exists():
            return
        try:
            await _ip(f"link delete {self.cable(number)}")
        except Broken:
            if device.exists():
                raise

    async def remove(self) -> None:
        """Take the bridge and its rules away, the bridge last; absent is success."""
        await asyncio.to_thread(forwarding.forget, self.bridge)
        await _run(["nft", "-f", "-"], f"table inet {self.table}\ndelete table inet {self.table}\n")
        if self._is_there():
            await _ip(f"link delete {self.bridge}")

    async def _build(self) -> None:
        taken = await _subnets_in_use()
        subnet = choose_subnet(self.tag, taken) if not self.wish else self.wish
        (self.state / "subnet").write_text(str(subnet))
        await self._lay()
        _let_forward()

    async def _lay(self) -> None:
        """The bridge alone, with the subnet that was chosen."""
        await _ip(
            f"link add {self.bridge} type bridge",
            f"address add {self.gateway}/{self.subnet.prefixlen} dev {self.bridge}",
            f"link set {self.bridge} up",
        )


def _is_up(device: str) -> bool:
    flags = Path(f"/sys/class/net/{device}/flags").read_text()
    return bool(int(flags, 16) & _IFF_UP)


def _forwards() -> bool:
    return _FORWARD.read_text().strip() == "1"


def _let_forward() -> None:
    if not _forwards():
        _FORWARD.write_text("1")


_POOL = list(ipaddress.IPv4Network("10.200.0.0/13").subnets(new_prefix=20))


def choose_subnet(tag: str, taken: Sequence[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """One of 128 that overlaps with nothing on this host, beginning with the tag's own."""
    first = int(tag, 16) % len(_POOL)
    for subnet in (*_POOL[first:], *_POOL[:first]):
        if not any(subnet.overlaps(other) for other in taken):
            return subnet
    raise LimitExceeded(
        f"every subnet of {_POOL[0].supernet(new_prefix=13)} is in use on this host",
        remediation="set local.open_subnet to one that is free",
    )


async def _subnets_in_use() -> list[ipaddress.IPv4Network]:
    output = await _run(["ip", "-4", "-o", "route", "show", "table", "main"], "")
    words = [line.split()[0] for line in output.splitlines() if line.strip()]
    return [ipaddress.IPv4Network(word, strict=False) for word in words if word[:1].isdigit()]


async def _ip(*commands: str, prefix: Sequence[str] = (), lend: Sequence[int] = ()) -> None:
    text = "".join(f"{command}\n" for command in commands)
    await _run([*prefix, "ip", "-batch", "-"], text, lend)


async def _run(argv: Sequence[str], text: str, lend: Sequence[int] = ()) -> str:
    """Run a program that reads `text` and keeps the descriptors lent to it under their numbers."""
    try:
        with readable(text) as given:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=given,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=lend,
            )
    except FileNotFoundError as error:
        raise Unavailable(
            f"{argv[0]} is not installed, and an open network needs it",
            remediation="`apt-get install iproute2 nftables util-linux`",
        ) from error
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise Broken(f"`{argv[0]}` could not set up the open network: {output.decode().strip()}")
    return output.decode()
