"""The open network: one bridge of this installation, made when a sandbox first asks for it.

A sandbox without it has loopback only. With it, it reaches what the host can route to. Where this
is root on the engine's own host, it reaches neither the host itself, nor its neighbours, nor any
link-local address (where clouds keep their metadata); elsewhere only the engine's own separation
of neighbours holds, and check() says so.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddock.adapters.providers.docker import records
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.names import Names
from paddock.adapters.providers.docker.records import Container
from paddock.adapters.providers.host import open_network
from paddock.adapters.providers.host.input import readable
from paddock.adapters.providers.host.owner import Turns
from paddock.domain.errors import Broken, Conflict, NotFound, Refused

_CLOSED = "none"


@dataclass
class OpenNetwork:
    """The bridge of one installation."""

    engine: Engine
    names: Names
    subnet: str = ""
    fenced: bool = False
    """Whether this process can set the host's own rules for it."""
    gateway_uid: int = 0
    """Whom the egress gateway runs as: no allowlist leads to a sandbox on this network."""
    _turns: Turns = field(default_factory=Turns)
    _expected: int = 0

    @asynccontextmanager
    async def expected(self) -> AsyncIterator[None]:
        """The network is there and stays while a container for it is being made."""
        self._expected += 1
        try:
            await self.ensure()
            yield
        finally:
            self._expected -= 1

    async def ensure(self) -> str:
        """The network's id; it is there and fenced afterwards."""
        async with self._turns.take(self.names.network):
            found = await self._find()
            if found is None:
                with suppress(Conflict):  # another control plane was quicker
                    await self._make()
                found = await self._find()
            if found is None:
                raise Broken(f"the network {self.names.network} cannot be made")
            await self._fence(found)
            self.separate()
            return str(found["Id"])

    async def attach(self, container: Container) -> None:
        """Connect a running or stopped container; connected already is success."""
        current = await self.ensure()
        if container.networks.get(self.names.network) != current:
            if self.names.network in container.networks:  # a network of that name that is gone
                await self._disconnect(container, self.names.network)
            if _CLOSED in container.networks:
                await self._disconnect(container, _CLOSED)
            await self.engine.post(
                f"networks/{current}/connect",
                f"open the network for container {container.name}",
                {"Container": container.id},
            )
        self.separate()

    async def detach(self, container: Container) -> None:
        """Take the network away, with all connections through it."""
        if self.names.network in container.networks:
            await self._disconnect(container, self.names.network)
        await self.remove_unused()

    async def remove_unused(self) -> None:
        """With the last container that refers to it, running or not, the network goes."""
        async with self._turns.take(self.names.network):
            users = await self.engine.get(
                "containers/json",
                "list what uses its network",
                all=1,
                filters=json.dumps({"network": [self.names.network]}),
            )
            if users or self._expected or await self._find() is None:
                return
            with suppress(NotFound, Conflict, Refused):  # it was taken into use meanwhile
                await self.engine.delete(f"networks/{self.names.network}", "remove its network")
                await self._unfence()

    def separate(self) -> None:
        """Let no two sandboxes on the bridge see each other's packets, not even the broadcasts."""
        if not self.fenced:
            return
        with suppress(FileNotFoundError):
            for port in Path(f"/sys/class/net/{self.names.bridge}/brif").iterdir():
                (port / "isolated").write_text("1")

    async def _find(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = await self.engine.get(
                f"networks/{self.names.network}", "find its network"
            )
        except NotFound:
            return None
        return found

    async def _make(self) -> None:
        options = {
            "com.docker.network.bridge.name": self.names.bridge,
            "com.docker.network.bridge.enable_icc": "false",
            "com.docker.network.bridge.enable_ip_masquerade": "true",
        }
        order = {
            "Name": self.names.network,
            "CheckDuplicate": True,
            "Driver": "bridge",
            "Internal": False,
            "EnableIPv6": False,
            "Options": options,
            "Labels": records.labels(self.names.installation, records.NETWORK, None),
            **({"IPAM": {"Config": [{"Subnet": self.subnet}]}} if self.subnet else {}),
        }
        await self.engine.post("networks/create", "make the open network", order)

    async def _disconnect(self, container: Container, network: str) -> None:
        with suppress(NotFound):
            await self.engine.post(
                f"networks/{network}/disconnect",
                f"take container {container.name} off network {network}",
                {"Container": container.id, "Force": True},
            )

    async def _fence(self, network: dict[str, Any]) -> None:
        if self.fenced:
            subnet = network["IPAM"]["Config"][0]["Subnet"]
            rules = open_network.rules(
                self.names.table, self.names.bridge, subnet, self.gateway_uid
            )
            await _nft(rules)

    async def _unfence(self) -> None:
        if self.fenced:
            await _nft(f"table inet {self.names.table}\ndelete table inet {self.names.table}\n")


def can_fence() -> bool:
    return shutil.which("nft") is not None


async def _nft(script: str) -> None:
    with readable(script) as given:
        process = await asyncio.create_subprocess_exec(
            *("nft", "-f", "-"),
            stdin=given,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise Broken(f"the open network could not be fenced: {output.decode().strip()}")
