"""A build's archive as a plain root file system, and the other way round, without unpacking it.

Who is not root cannot unpack a root file system and keep its owners; a stream of tar entries keeps
them for whoever may.
"""

import asyncio
import io
import os
import subprocess
import tarfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO

import msgspec

from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.templates.archives import is_zstd
from paddock.adapters.providers.local.templates.builds import NOTE, Note
from paddock.adapters.providers.local.templates.programs import need
from paddock.domain.errors import InvalidRequest

_CHUNK = 1 << 20
_ROOT = "rootfs"

Rename = Callable[[str], str | None]
"""The new name of an entry; None leaves it out."""


async def root_of(archive: Path, digest: str) -> AsyncIterator[bytes]:
    """The root file system of a build that export() wrote, as a tar."""
    need("zstd")
    prefix = f"{digest}/{_ROOT}"

    def rename(name: str) -> str | None:
        name = name.removeprefix("./")
        return f".{name.removeprefix(prefix)}" if f"{name}/".startswith(f"{prefix}/") else None

    def work(out: BinaryIO) -> None:
        command = ["zstd", "-dc", "--", str(archive)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            try:
                with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as target:
                    copied = _copy(process.stdout, target, rename, {})
            finally:
                process.kill()
        if not copied:
            raise InvalidRequest(f"{archive} holds no root file system of {digest}")

    async for data in _piped(work):
        yield data


async def plain(archive: Path) -> AsyncIterator[bytes]:
    """A tar file of somebody else's, as it is; zstd is undone, which not every engine knows."""
    if not is_zstd(archive):
        with explained(archive), archive.open("rb") as file:
            while data := await asyncio.to_thread(file.read, _CHUNK):
                yield data
        return
    need("zstd")

    def work(out: BinaryIO) -> None:
        subprocess.run(["zstd", "-dc", "--", str(archive)], stdout=out, check=False)

    async for data in _piped(work):
        yield data


async def keep(root: AsyncIterator[bytes], note: Note, texts: Mapping[str, str], to: Path) -> None:
    """The archive that export() would have written of this root, with other texts in some files."""
    need("zstd")
    prefix = f"{note.digest}/{_ROOT}"

    def rename(name: str) -> str:
        return f"{prefix}/{name.removeprefix('./')}"

    def work(source: BinaryIO) -> None:
        command = ["zstd", "--quiet", "-T0", "-3", "-o", str(to)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            assert process.stdin
            with (
                process.stdin as out,
                tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as target,
            ):
                content = msgspec.json.format(msgspec.json.encode(note))
                entry = tarfile.TarInfo(f"{note.digest}/{NOTE}")
                entry.size, entry.mode = len(content), 0o644
                target.addfile(entry, io.BytesIO(content))
                _copy(source, target, rename, {rename(path): texts[path] for path in texts})
        if process.returncode:
            raise OSError(f"zstd ended with {process.returncode}")

    with explained(to):
        await _fed(root, work)


def _copy(
    source: IO[bytes], target: tarfile.TarFile, rename: Rename, texts: Mapping[str, str]
) -> int:
    """How many entries were copied. Holes are filled; extended attributes are kept."""
    count = 0
    with tarfile.open(fileobj=source, mode="r|") as entries:
        for entry in entries:
            name = rename(entry.name)
            if name is None:
                continue
            content = entries.extractfile(entry) if entry.isreg() else None
            if content is not None and name in texts:
                content = io.BytesIO(texts[name].encode())
                entry.size = len(texts[name].encode())
            if entry.islnk():
                entry.linkname = rename(entry.linkname) or entry.linkname
            entry.name = name
            if entry.isreg():
                entry.type = tarfile.REGTYPE
            entry.pax_headers = {
                key: value
                for key, value in entry.pax_headers.items()
                if key.startswith("SCHILY.xattr.")
            }
            target.addfile(entry, content)
            count += 1
    return count


async def _piped(work: Callable[[BinaryIO], None]) -> AsyncIterator[bytes]:
    """What blocking work in a thread writes."""
    read, write = os.pipe()

    def produce() -> None:
        with os.fdopen(write, "wb") as out, suppress(BrokenPipeError):
            work(out)

    producing = asyncio.create_task(asyncio.to_thread(produce))
    try:
        with os.fdopen(read, "rb", buffering=0) as source:
            while data := await asyncio.to_thread(source.read, _CHUNK):
                yield data
    finally:  # with nobody to read any more, it ends by itself
        await asyncio.wait({producing})
    await producing


async def _fed(data: AsyncIterator[bytes], work: Callable[[BinaryIO], None]) -> None:
    """Let blocking work in a thread read what comes."""
    read, write = os.pipe()

    def consume() -> None:
        with os.fdopen(read, "rb") as source:
            work(source)

    consuming = asyncio.create_task(asyncio.to_thread(consume))
    try:
        with suppress(BrokenPipeError), os.fdopen(write, "wb", buffering=0) as out:
            async for piece in data:
                await asyncio.to_thread(_write_all, out, piece)
    finally:  # with nothing to read any more, it ends by itself
        await asyncio.wait({consuming})
    await consuming


def _write_all(out: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[out.write(view) :]
