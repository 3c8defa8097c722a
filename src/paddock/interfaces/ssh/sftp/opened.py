"""Files that a client has open: read and written piece by piece."""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import asyncssh

from paddock.domain.errors import InvalidRequest, LimitExceeded, NotFound
from paddock.guest_client.posix import Opening
from paddock.interfaces.ssh.sftp.asking import OWNER_WRITES, Asking, changes_of, mode_of, text, told
from paddock.services.transfers import Part, Span

_MOST_OPEN = 256
_MOST_READ = 4
"""At the same time; the others are taken up again where they were."""


@dataclass(eq=False)
class OpenFile:
    """What the client's handle stands for; the guest has nothing open for it."""

    path: str
    append: bool = False
    mode_in_the_end: int | None = None
    """A file may be made read-only and written all the same, as long as it is open."""
    position: int = 0
    """Where the stream that is being read stands."""
    pieces: AsyncGenerator[bytes, None] | None = None
    rest: bytes = b""


class Opened(Asking):
    """The requests that come with a handle, and the one that makes it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._count = 0
        self._reading: list[OpenFile] = []

    @told
    async def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> OpenFile:
        if self._count >= _MOST_OPEN:
            raise LimitExceeded(f"{_MOST_OPEN} files are open already")
        name, mode = text(path), mode_of(attrs)
        how = _opening(pflags, mode)
        read_only = how.create and mode is not None and not mode & OWNER_WRITES
        made = read_only and not await self._exists(name)
        await self.ask(lambda posix: posix.open(name, self.user, how))
        self._count += 1
        opened = OpenFile(name, append=bool(pflags & asyncssh.FXF_APPEND))
        opened.mode_in_the_end = mode if made else None
        return opened

    @told
    async def close(self, file_obj: object) -> None:
        file = _file(file_obj)
        self._count -= 1
        await self._stop_reading(file)
        if file.mode_in_the_end is not None:
            await self.change(file.path, {"mode": file.mode_in_the_end})

    @told
    async def read(self, file_obj: object, offset: int, size: int) -> bytes:
        """From one stream as long as the client reads on where it was."""
        file = _file(file_obj)
        if file.pieces is None or offset != file.position:
            await self._begin_reading(file, offset)
        data = await _take(file, size)
        file.position += len(data)
        if len(data) < size:
            await self._stop_reading(file)  # the next one sees what was added since
        return data

    @told
    async def write(self, file_obj: object, offset: int, data: bytes) -> int:
        file = _file(file_obj)
        await self._stop_reading(file)
        await self.ask(
            lambda posix: posix.write_at(file.path, self.user, data, offset, append=file.append)
        )
        return len(data)

    @told
    async def fstat(self, file_obj: object) -> asyncssh.SFTPAttrs:
        return await self.attributes(_file(file_obj).path, follow=True)

    @told
    async def fsetstat(self, file_obj: object, attrs: asyncssh.SFTPAttrs) -> None:
        file, changes = _file(file_obj), changes_of(attrs)
        if "mode" in changes:
            file.mode_in_the_end = None
            if not changes["mode"] & OWNER_WRITES:
                file.mode_in_the_end = changes.pop("mode")
        await self.change(file.path, changes)

    @told
    async def fstatvfs(self, file_obj: object) -> os.statvfs_result:
        return await self.space(_file(file_obj).path)

    async def fsync(self, file_obj: object) -> None:
        """What was written is with the sandbox's kernel already; more cannot be asked for here."""

    async def _exists(self, path: str) -> bool:
        try:
            await self.ask(lambda posix: posix.stat(path, self.user, follow=False))
        except NotFound:
            return False
        return True

    async def _begin_reading(self, file: OpenFile, offset: int) -> None:
        await self._stop_reading(file)
        while len(self._reading) >= _MOST_READ:
            await self._stop_reading(self._reading[0])
        file.pieces, file.position = self._pieces(file.path, offset), offset
        self._reading.append(file)

    async def _stop_reading(self, file: OpenFile) -> None:
        pieces, file.pieces, file.rest = file.pieces, None, b""
        if pieces is not None:
            self._reading.remove(file)
            await pieces.aclose()

    async def _pieces(self, path: str, offset: int) -> AsyncGenerator[bytes, None]:
        span = Span(f"bytes={offset}-" if offset else "")
        async with self.visits.enter(self.admitted) as entered:
            whole: AsyncGenerator[Any, None] = entered.guest.open_file(path, self.user, span)  # type: ignore[assignment]
            async with aclosing(whole):
                try:
                    part = await anext(whole)
                except InvalidRequest:
                    return  # the offset is past the end
                assert isinstance(part, Part)
                # A file of /proc has no length, and is sent from its start whatever was asked.
                skip = 0 if part.content_range else offset
                async for data in whole:
                    yield data[skip:]
                    skip = max(0, skip - len(data))


def _opening(pflags: int, mode: int | None) -> Opening:
    writes = bool(pflags & (asyncssh.FXF_WRITE | asyncssh.FXF_APPEND))
    return Opening(
        read=bool(pflags & asyncssh.FXF_READ) or not writes,
        write=writes,
        create=bool(pflags & asyncssh.FXF_CREAT),
        exclusive=bool(pflags & asyncssh.FXF_EXCL),
        cut=bool(pflags & asyncssh.FXF_TRUNC),
        mode=0o666 if mode is None else mode | OWNER_WRITES,
    )


async def _take(file: OpenFile, size: int) -> bytes:
    """So much of the stream; less only at its end."""
    assert file.pieces is not None
    taken, count = [file.rest], len(file.rest)
    while count < size:
        piece = await anext(file.pieces, None)
        if piece is None:
            break
        taken.append(piece)
        count += len(piece)
    data = b"".join(taken)
    file.rest = data[size:]
    return data[:size]


def _file(file_obj: object) -> OpenFile:
    assert isinstance(file_obj, OpenFile)
    return file_obj
