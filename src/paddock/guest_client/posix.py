"""Files as POSIX has them: one small step per call, nothing left open in between."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.domain.errors import Broken
from paddock.guest_client import answers
from paddock.guest_client.answers import Message
from paddock.guest_client.transport import Transport, basic_user, read_all

_SERVICE = "paddock.Files"
_WRITE_S = 120.0
_LARGEST_32 = 2**32 - 1
_LARGEST_64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a file is; the numbers are the sandbox's own."""

    mode: int
    """Its kind and its rights, as `st_mode` has them."""
    size: int
    uid: int
    gid: int
    owner: str
    group: str
    atime: int
    mtime: int
    links: int


@dataclass(frozen=True, slots=True)
class Named:
    """A file in a directory. Bytes of the name that are no UTF-8 are lone surrogates."""

    name: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Opening:
    """How a file shall be opened."""

    read: bool = False
    write: bool = False
    create: bool = False
    exclusive: bool = False
    cut: bool = False
    """To nothing, if it is there."""
    mode: int = 0o666
    """Of one that is made."""


class PosixFiles:
    """Whose rights count is said with every call; paths are relative to that user's home."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def stat(self, path: str, user: str, *, follow: bool = True) -> Attributes:
        answer = await self._call("Stat", {"path": path, "follow": follow}, user)
        return _attributes(answers.inner(answer, "attributes"))

    async def set(self, path: str, user: str, changes: Mapping[str, int]) -> None:
        """Of mode, uid and gid, atime and mtime, size: those that are given."""
        await self._call("Set", {"path": path, **changes}, user)

    async def open(self, path: str, user: str, how: Opening) -> Attributes:
        """What opening it so would do; refused where that would be."""
        wanted = {name: getattr(how, name) for name in Opening.__slots__}
        answer = await self._call("Open", {"path": path, **wanted}, user)
        return _attributes(answers.inner(answer, "attributes"))

    async def write_at(
        self, path: str, user: str, data: bytes, offset: int, *, append: bool = False
    ) -> None:
        """Into a file that is there. With `append` the offset means nothing."""
        query = {"path": path, "offset": str(offset), "append": str(append).lower()}
        async with self._transport.request(
            "POST",
            f"{_SERVICE}/WriteAt",
            headers={"content-type": "application/octet-stream", **basic_user(user)},
            query=query,
            body=data,
            timeout=_WRITE_S,
        ) as answer:
            await read_all(answer, 1 << 16, path)

    async def scan(self, path: str, user: str) -> AsyncIterator[Named]:
        """What is in a directory, as it comes: never all of it in memory."""
        async for some in self._transport.stream(f"{_SERVICE}/Scan", {"path": path}, user=user):
            for item in answers.many(some, "entries"):
                yield _named(item)

    async def make_directory(self, path: str, user: str, mode: int = 0o777) -> None:
        await self._call("MakeDirectory", {"path": path, "mode": mode}, user)

    async def remove(self, path: str, user: str, *, directory: bool = False) -> None:
        """A file or a link, or an empty directory; Conflict when that is not empty."""
        await self._call("RemoveDirectory" if directory else "RemoveFile", {"path": path}, user)

    async def rename(self, path: str, user: str, destination: str, *, replace: bool) -> None:
        message = {"path": path, "destination": destination, "replace": replace}
        await self._call("Rename", message, user)

    async def link(self, path: str, user: str, target: str, *, hard: bool) -> None:
        await self._call("Link", {"path": path, "target": target, "hard": hard}, user)

    async def read_link(self, path: str, user: str) -> str:
        return answers.text(await self._call("ReadLink", {"path": path}, user), "target")

    async def real_path(self, path: str, user: str) -> str:
        """Absolute and without links, also where nothing is there."""
        return answers.text(await self._call("RealPath", {"path": path}, user), "path")

    async def space(self, path: str, user: str) -> Mapping[str, int]:
        """What `statvfs` says, without the `f_`."""
        found = await self._call("Space", {"path": path}, user)
        return {name: _bounded(found, name, _LARGEST_64) for name in found}

    async def _call(self, method: str, message: dict[str, Any], user: str) -> Message:
        return await self._transport.call(f"{_SERVICE}/{method}", message, user=user)


def _named(message: Message) -> Named:
    name = answers.text(message, "name")
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        # Whoever copies the directory would write beside it.
        raise Broken(f"the guest sent {name[:100]!r} as the name of a file")
    return Named(name, _attributes(answers.inner(message, "attributes")))


def _attributes(message: Message) -> Attributes:
    return Attributes(
        mode=_bounded(message, "mode"),
        size=_bounded(message, "size", _LARGEST_64),
        uid=_bounded(message, "uid"),
        gid=_bounded(message, "gid"),
        owner=answers.text(message, "owner", "")[:64],
        group=answers.text(message, "group", "")[:64],
        atime=_bounded(message, "atime", default=0),
        mtime=_bounded(message, "mtime", default=0),
        links=_bounded(message, "links", default=1),
    )


def _bounded(message: Message, name: str, most: int = _LARGEST_32, default: int = -1) -> int:
    """A number that fits where it goes; without a default it has to be there and fit."""
    value = answers.whole(message, name, default)
    if 0 <= value <= most:
        return value
    if default >= 0:
        return default
    raise Broken(f"the guest sent {value} as {name}")
