"""Volumes: directories that sandboxes share, and that outlive them.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Iterator
from typing import Self

from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.results import VolumeInfo
from paddock.interfaces.client.server import Server
from paddock.interfaces.client.volume import AsyncVolume


class Volume:
    """A volume of your team. Sandboxes mount it when they are made."""

    _inner: AsyncVolume

    def __init__(self, inner: AsyncVolume) -> None:
        self._inner = inner

    @classmethod
    def create(
        cls,
        name: str,
        *,
        size_mib: int | None = None,
        provider: str = "",
        server: Server | None = None,
    ) -> Self:
        """Make an empty one."""
        return cls(
            portal().run(
                AsyncVolume.create(name, size_mib=size_mib, provider=provider, server=server)
            )
        )

    @classmethod
    def connect(cls, volume: str, *, server: Server | None = None) -> Self:
        """One that is there, by id or name."""
        return cls(portal().run(AsyncVolume.connect(volume, server=server)))

    @classmethod
    def list(cls, *, server: Server | None = None) -> Iterator[VolumeInfo]:
        """Your team's, newest first."""
        return portal().each(AsyncVolume.list(server=server))

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def name(self) -> str:
        return self._inner.name

    def info(self) -> VolumeInfo:
        """How it is now: also how much is in it, and who mounts it."""
        return portal().run(self._inner.info())

    def delete(self, *, force: bool = False) -> None:
        """With everything in it. While sandboxes mount it only with force: they go on with an empty
        directory, and start without it."""
        portal().run(self._inner.delete(force=force))

    def close(self) -> None:
        """Close the connections to the server; the volume stays as it is."""
        portal().run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        portal().run(self._inner.__aexit__(None, None, None))

    def __repr__(self) -> str:
        return repr(self._inner)
