"""Content of any size between this machine and a sandbox, in bounded memory."""

import asyncio
import os
import posixpath
import tarfile
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

import aiohttp

from paddock.domain.errors import Conflict, InvalidRequest, NotFound, Unavailable
from paddock.interfaces.client import failures
from paddock.interfaces.client.results import FileInfo, Transfer, read
from paddock.interfaces.client.server import Body, Call, Pauses, Query, Server, segment

if not hasattr(tarfile, "data_filter"):  # Python before 3.11.4, for example Debian 12's
    with suppress(ImportError):  # only downloads of directories need it
        from backports import tarfile  # type: ignore[no-redef]

Content = str | bytes | BinaryIO | Iterable[bytes] | AsyncIterable[bytes]
Told = Callable[[int, int | None], None]
"""How many bytes have been copied, and how many there are where that is known."""
_CHUNK = 1 << 20
_PARTIAL = 206
_ATTEMPTS = 3


class AsyncTransfers:
    """Files and whole directories, in and out."""

    def __init__(self, server: Server, sandbox: str) -> None:
        self._server = server
        self._path = f"/v1/sandboxes/{segment(sandbox)}"

    async def read_stream(
        self, path: str, *, user: str = "", wake: bool = False
    ) -> AsyncIterator[bytes]:
        """A file's content as it comes. When the connection breaks it goes on where it was;
        Conflict when the file was changed meanwhile, so that no two versions are ever mixed."""
        async for piece in self._resumed(f"{self._path}/files", at(path, user, wake)):
            yield piece

    async def upload(
        self,
        local: str | os.PathLike[str],
        path: str,
        *,
        user: str = "",
        wake: bool = False,
        progress: Told | None = None,
    ) -> Transfer:
        """A file becomes the one at `path`, a directory's content becomes part of that at `path`;
        permissions and links are kept. What in it is neither file, directory nor link is skipped.
        """
        source, told = Path(local), progress or _unheard
        _check_content(source)
        if not source.is_dir() and not source.stat().st_mode & 0o111:
            query, size = at(path, user, wake), source.stat().st_size
            with await asyncio.to_thread(source.open, "rb") as file:
                await self._put("files", query, _counted(file, size, told))
            return Transfer(1, size)
        with tempfile.TemporaryDirectory(prefix="paddock-") as place:
            archive = Path(place) / "upload.tar"
            target = PurePosixPath(path)
            skipped = await asyncio.to_thread(_pack, source, archive, target.name)
            into = path if source.is_dir() else str(target.parent)
            with await asyncio.to_thread(archive.open, "rb") as file:
                body = _counted(file, archive.stat().st_size, told)
                answer = await self._put("archive", at(into, user, wake), body)
        return Transfer(answer["files"], answer["bytes"], skipped)

    async def download(
        self,
        path: str,
        local: str | os.PathLike[str],
        *,
        user: str = "",
        wake: bool = False,
        progress: Told | None = None,
    ) -> Transfer:
        """A file becomes the one at `local`, a directory's content becomes part of that there.
        Nothing of it is ever written outside of `local`."""
        query, target, told = at(path, user, wake), Path(local), progress or _unheard
        found = await self._stat(query)
        if found.kind == "directory":
            with tempfile.TemporaryFile(prefix="paddock-") as archive:
                await self._save_archive(query, archive, lambda n: told(n, None))
                return await asyncio.to_thread(_unpack, archive, target)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                size = found.size
                pieces = self._resumed(f"{self._path}/files", query)
                await _save(pieces, file, lambda n: told(n, size))
                size = file.tell()
            Path(name).chmod(int(found.mode, 8) & 0o777 | 0o600)
            Path(name).rename(target)
        finally:
            with suppress(FileNotFoundError):
                Path(name).unlink()
        return Transfer(1, size)

    async def _save_archive(
        self, query: Query, file: IO[bytes], heard: Callable[[int], None]
    ) -> None:
        """An archive is made anew for everyone who asks, so that a broken one begins anew; but not
        for ever, because one with something that cannot be read breaks off each time."""
        for left in reversed(range(_ATTEMPTS)):
            file.seek(0)
            file.truncate()
            try:
                call = Call("GET", f"{self._path}/archive", query=query)
                await _save(self._pieces(call), file, heard)
                return
            except Unavailable:
                if not left or not file.tell():
                    raise

    async def _resumed(self, path: str, query: Query) -> AsyncIterator[bytes]:
        pauses, had = Pauses(), _Had(str(query["path"]))
        while True:
            call = Call("GET", path, query=query, headers=had.headers())
            try:
                async for piece in self._pieces(call, had.check):
                    pauses.begin()
                    had.size += len(piece)
                    yield piece
                return
            except Unavailable as error:
                if not had.can_go_on:
                    raise
                await pauses.wait(error, self._server.patience_s(error))

    async def _pieces(
        self, call: Call, check: Callable[[aiohttp.ClientResponse], None] | None = None
    ) -> AsyncIterator[bytes]:
        async with self._server.open(call) as response:
            if check is not None:
                check(response)
            try:
                async for piece in response.content.iter_chunked(_CHUNK):
                    yield piece
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                what = f"{call.method} {call.path}"
                raise failures.interrupted(self._server.url, what, error) from error

    async def _put(self, what: str, query: Query, body: Body) -> dict[str, int]:
        answer: dict[str, int] = await self._server.call(
            "PUT", f"{self._path}/{what}", query=query, body=body
        )
        return answer

    async def _stat(self, query: Query) -> FileInfo:
        return read(
            FileInfo, await self._server.call("GET", f"{self._path}/files/stat", query=query)
        )

    async def _is_here(self) -> bool:
        """Whether it was the file that was not found, and not the sandbox."""
        try:
            await self._server.call("GET", self._path)
        except NotFound:
            return False
        return True


def at(path: str, user: str, wake: bool = False) -> Query:
    """Which file, whose rights count, and whether a sandbox that sleeps is started for it."""
    return {"path": path, "user": user, "wake": wake or None}


async def _save(
    pieces: AsyncIterator[bytes], file: IO[bytes], heard: Callable[[int], None]
) -> None:
    done = 0
    async for piece in pieces:
        await asyncio.to_thread(file.write, piece)
        done += len(piece)
        heard(done)


@dataclass(slots=True)
class _Had:
    """What we have of a file, and of which version of it."""

    path: str
    size: int = 0
    tag: str = ""

    @property
    def can_go_on(self) -> bool:
        return bool(self.tag) or not self.size

    def headers(self) -> dict[str, str]:
        return {"range": f"bytes={self.size}-", "if-range": self.tag} if self.size else {}

    def check(self, response: aiohttp.ClientResponse) -> None:
        """Whether what is coming belongs to what we have."""
        if self.size and response.status != _PARTIAL:
            raise Conflict(
                f"{self.path} was changed while it was read, after the connection had broken",
                remediation="read it again from its beginning",
            )
        self.tag = response.headers.get("etag", "")


def sent(data: Content) -> tuple[Body, bool]:
    """What is sent for this content, and whether it can be had only once."""
    if isinstance(data, str):
        return data.encode(), False
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data), False
    if isinstance(data, AsyncIterable):
        return lambda: data, True
    reader = getattr(data, "read", None)
    if reader is not None:
        return lambda: _from_thread(iter(lambda: reader(_CHUNK), b"")), True
    return lambda: _from_thread(data), True


async def _from_thread(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Whoever makes the pieces may take its time."""
    source = iter(pieces)
    while (piece := await asyncio.to_thread(next, source, None)) is not None:
        yield piece


def _counted(file: IO[bytes], size: int, told: Told) -> Callable[[], AsyncIterator[bytes]]:
    async def pieces() -> AsyncIterator[bytes]:
        done = 0
        # At a place of its own: an attempt that broke off may still be reading.
        while piece := await asyncio.to_thread(os.pread, file.fileno(), _CHUNK, done):
            yield piece
            done += len(piece)
            told(done, size)

    return pieces


def _unheard(_done: int, _size: int | None) -> None:
    return None


class _Tar(tarfile.TarFile):
    """Files, directories and links; of all else, such as sockets and pipes, the names."""

    left_out: tuple[str, ...] = ()

    def gettarinfo(
        self,
        name: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None = None,
        arcname: str | None = None,
        fileobj: IO[bytes] | None = None,
    ) -> tarfile.TarInfo:
        found: tarfile.TarInfo | None = super().gettarinfo(name, arcname, fileobj)
        if found is not None and (found.isreg() or found.isdir() or found.issym() or found.islnk()):
            return found
        self.left_out += (posixpath.normpath(str(arcname)),)
        return cast(tarfile.TarInfo, None)  # which is how it says that there is nothing to add


def _check_content(source: Path) -> None:
    """Reading a pipe would wait for whoever writes to it, for ever."""
    if source.exists() and not source.is_file() and not source.is_dir():
        raise InvalidRequest(
            f"{source} is neither a file nor a directory",
            remediation="name one that is; what a pipe or a device gives can be written to a file",
        )


def _pack(source: Path, archive: Path, name: str) -> tuple[str, ...]:
    """What was left out."""
    with _Tar.open(archive, "w") as tar:
        tar.add(source, arcname="." if source.is_dir() else name)
        return tar.left_out


def _unpack(archive: IO[bytes], target: Path) -> Transfer:
    """What a sandbox says is in its files is not to be believed."""
    archive.seek(0)
    target.mkdir(parents=True, exist_ok=True)
    files, size, skipped = 0, 0, []
    with tarfile.open(fileobj=archive, mode="r|") as tar:
        for member in tar:
            try:
                tar.extract(member, target, filter="data")
            except tarfile.FilterError:
                skipped.append(member.name)
                continue
            files += member.isreg()
            size += member.size if member.isreg() else 0
    return Transfer(files, size, tuple(skipped))
