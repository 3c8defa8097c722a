"""Volumes: directories that sandboxes share, and that outlive them."""

from collections.abc import AsyncIterator
from typing import Self

from paddock.domain.ids import new_id
from paddock.interfaces.client.results import VolumeInfo, read
from paddock.interfaces.client.server import Server, segment, without_nothing


class AsyncVolume:
    """A volume of your team. Sandboxes mount it when they are made."""

    def __init__(self, server: Server, info: VolumeInfo) -> None:
        self._server = server
        self._info = info

    @classmethod
    async def create(
        cls,
        name: str,
        *,
        size_mib: int | None = None,
        provider: str = "",
        server: Server | None = None,
    ) -> Self:
        """Make an empty one."""
        place = server or Server()
        wish = without_nothing(name=name, size_mib=size_mib, provider=provider or None)
        answer = await place.call("POST", "/v1/volumes", json=wish, key=new_id("key"))
        return cls(place, read(VolumeInfo, answer))

    @classmethod
    async def connect(cls, volume: str, *, server: Server | None = None) -> Self:
        """One that is there, by id or name."""
        place = server or Server()
        answer = await place.call("GET", f"/v1/volumes/{segment(volume)}")
        return cls(place, read(VolumeInfo, answer))

    @classmethod
    async def list(cls, *, server: Server | None = None) -> AsyncIterator[VolumeInfo]:
        """Your team's, newest first."""
        async for item in (server or Server()).pages("/v1/volumes", {}):
            yield read(VolumeInfo, item)

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def name(self) -> str:
        return self._info.name

    async def info(self) -> VolumeInfo:
        """How it is now: also how much is in it, and who mounts it."""
        answer = await self._server.call("GET", f"/v1/volumes/{self.id}")
        self._info = read(VolumeInfo, answer)
        return self._info

    async def delete(self, *, force: bool = False) -> None:
        """With everything in it. While sandboxes mount it only with force: they go on with an empty
        directory, and start without it."""
        query = {"force": force or None}
        await self._server.call("DELETE", f"/v1/volumes/{self.id}", query=query)

    async def close(self) -> None:
        """Close the connections to the server; the volume stays as it is."""
        await self._server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.id}>"
