"""What can be seen of a sandbox from outside: its state, its use, its ports, its events."""

from collections.abc import AsyncIterator, Sequence

from paddock.interfaces.client.credentials import CredentialInfo, Spending
from paddock.interfaces.client.events import follow_events, list_events
from paddock.interfaces.client.results import (
    Event,
    Link,
    Port,
    SandboxInfo,
    SnapshotInfo,
    Usage,
    read,
)
from paddock.interfaces.client.server import Server


class AsyncSight:
    """What can be seen of one sandbox."""

    _server: Server
    _info: SandboxInfo
    _path: str

    async def info(self) -> SandboxInfo:
        """As it is now."""
        self._info = read(SandboxInfo, await self._server.call("GET", self._path))
        return self._info

    async def is_running(self) -> bool:
        return (await self.info()).state == "running"

    async def metrics(self) -> Usage:
        """CPU, memory, disk and processes."""
        return read(Usage, await self._server.call("GET", f"{self._path}/metrics"))

    async def credentials(self) -> Sequence[CredentialInfo]:
        """What it may use without having it, and what keeps any of it from working."""
        answer = await self._server.call("GET", f"{self._path}/credentials")
        return [read(CredentialInfo, item) for item in answer["items"]]

    async def models(self) -> Spending:
        """Its routes to model APIs, and what it or its task took of them."""
        return read(Spending, await self._server.call("GET", f"{self._path}/models"))

    async def ports(self) -> Sequence[Port]:
        """Where programs inside listen."""
        answer = await self._server.call("GET", f"{self._path}/ports")
        return [read(Port, item) for item in answer["items"]]

    async def get_url(self, port: int) -> str:
        """Where a port is seen from outside, whether anything listens there yet or not.

        It is private unless made public: `share` makes a link that lets somebody in.
        """
        answer = await self._server.call("GET", f"{self._path}/ports/{port}")
        return str(answer["url"])

    async def share(self, port: int, seconds: float = 3600.0) -> Link:
        """A link to a private port that ends by itself."""
        answer = await self._server.call(
            "POST", f"{self._path}/ports/{port}/links", json={"lasts_s": seconds}
        )
        return read(Link, answer)

    async def revoke_links(self) -> None:
        """End every link to its ports that was ever made."""
        await self._server.call("DELETE", f"{self._path}/links")

    async def set_public_ports(self, ports: Sequence[int]) -> None:
        """These can be seen by everyone who reaches the server; the others are private."""
        wanted = {"public_ports": list(ports)}
        answer = await self._server.call("PATCH", self._path, json=wanted, repeatable=True)
        self._info = read(SandboxInfo, answer)

    async def snapshots(self) -> AsyncIterator[SnapshotInfo]:
        """Those that were taken of it."""
        async for item in self._server.pages("/v1/snapshots", {"sandbox": self._info.id}):
            yield read(SnapshotInfo, item)

    async def events(self, *, follow: bool = False) -> AsyncIterator[Event]:
        """What happened to it, oldest first; then, with `follow`, what happens."""
        last = 0
        async for event in list_events(self._server, self._info.id):
            last = event.seq
            yield event
        if follow:
            async for event in follow_events(self._server, self._info.id, after=last):
                yield event
