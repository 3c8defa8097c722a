"""Archives as streams: a tar looked through on its way in, and made a zip on its way out."""

import posixpath
import tarfile
import time
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NoReturn, Self

from paddock.domain.errors import Broken, InvalidRequest, LimitExceeded

_CHUNK = 256 << 10
_GZIP = b"\x1f\x8b"
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
_LARGEST_HEADER = 1 << 20
_LONGEST_NAME = 16 << 10
_MOST_LINK_BYTES = 16 << 20
_MOST_IN_ZIP = 200_000
"""A zip's table of contents is held in memory until its end."""
_EXTENDED = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE)
_LONG_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


@dataclass(slots=True)
class Contents:
    """What an archive holds."""

    files: int = 0
    directories: int = 0
    links: int = 0
    bytes: int = 0


class _Archive(tarfile.TarFile):
    """A tar whose headers are held in memory only as far as that is harmless."""

    global_bytes = 0


class _Member(tarfile.TarInfo):
    """Refuses headers that would have to be read as a whole, and maps of sparse files."""

    def _proc_member(self, archive: tarfile.TarFile) -> Self:
        size = self.size
        if self.type == tarfile.XGLTYPE and isinstance(archive, _Archive):
            archive.global_bytes += size
            size = archive.global_bytes
        if self.type in _EXTENDED + _LONG_NAMES and size > _LARGEST_HEADER:
            raise malformed(f"it has a header of {size} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            _refuse_sparse()
        made: Self = super()._proc_member(archive)  # type: ignore[misc]
        return made

    def _proc_gnusparse_00(self, *_: object) -> None:
        _refuse_sparse()

    def _proc_gnusparse_01(self, *_: object) -> None:
        _refuse_sparse()

    def _proc_gnusparse_10(self, *_: object) -> None:
        _refuse_sparse()


def members(source: BinaryIO) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Each as it comes, and then the rest of the stream: padding, but it has to be taken."""
    try:
        with _Archive.open(
            fileobj=source, mode="r|", bufsize=_CHUNK, tarinfo=_Member, errorlevel=2
        ) as archive:
            for member in archive:
                yield archive, _named(member)
                archive.members = []  # type: ignore[attr-defined] # or it would keep them all
    except tarfile.TarError as error:
        raise malformed(f"it is not a whole tar: {error}") from None
    while source.read(_CHUNK):
        pass


def _named(member: tarfile.TarInfo) -> tarfile.TarInfo:
    if max(len(member.name), len(member.linkname)) > _LONGEST_NAME:
        raise malformed("it has a name that is too long for any file system")
    return member


async def unpacked(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The tar itself, where it came compressed with gzip; anything else as it is."""
    head = b""
    async for piece in pieces:
        head += piece
        if len(head) >= len(_GZIP):
            break
    if not head.startswith(_GZIP):
        yield head
        async for piece in pieces:
            yield piece
        return
    inflate = _Inflate()
    for part in inflate.feed(head):
        yield part
    async for piece in pieces:
        for part in inflate.feed(piece):
            yield part
    inflate.check_whole()


class _Inflate:
    """gzip, one bounded piece at a time however well it was compressed."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    def feed(self, data: bytes) -> Iterator[bytes]:
        more = bool(data)
        while more:
            if self._stream.eof:
                self._stream = zlib.decompressobj(wbits=31)
            try:
                piece = self._stream.decompress(data, _CHUNK)
            except zlib.error as error:
                raise malformed(f"it is not gzip: {error}") from None
            data = self._stream.unconsumed_tail or self._stream.unused_data
            # All may have been taken in and yet more be to come out.
            more = bool(data) or (len(piece) == _CHUNK and not self._stream.eof)
            if piece:
                yield piece

    def check_whole(self) -> None:
        if not self._stream.eof:
            raise malformed("the gzip stream ended too early")


@dataclass(slots=True)
class _Links:
    """The symbolic links that an archive has made so far."""

    names: set[str] = field(default_factory=set)
    size: int = 0

    def add(self, name: str) -> None:
        self.names.add(name)
        self.size += len(name)
        if self.size > _MOST_LINK_BYTES:
            raise malformed("it has too many symbolic links")

    def are_on(self, path: str) -> bool:
        """Whether any part of the path is one of them."""
        path = posixpath.normpath(path)
        while self.names and path not in ("", ".", "/"):
            if path in self.names:
                return True
            path = posixpath.dirname(path)
        return False


def look_through(source: BinaryIO) -> Contents:
    """Read a tar to its end; InvalidRequest for what would lead out of where it is unpacked."""
    found, links = Contents(), _Links()
    for _, member in members(source):
        _check(member, links)
        _count(member, found)
    return found


def _check(member: tarfile.TarInfo, links: _Links) -> None:
    name = posixpath.normpath(member.name)
    if _leads_out(name):
        raise _dangerous(member, "leads out of the directory it is unpacked in")
    if member.ischr() or member.isblk() or member.isfifo():
        raise _dangerous(member, "is a device or a pipe")
    if member.islnk() and (_leads_out(member.linkname) or links.are_on(member.linkname)):
        raise _dangerous(member, "is a hard link to something outside")
    if links.are_on(posixpath.dirname(name)):
        raise _dangerous(member, "lies behind a symbolic link of the same archive")
    if member.issym():
        links.add(name)
    else:
        links.names.discard(name)


def _leads_out(name: str) -> bool:
    normal = posixpath.normpath(name)
    return normal == ".." or normal.startswith(("/", "../"))


def _count(member: tarfile.TarInfo, found: Contents) -> None:
    if member.isdir():
        found.directories += 1
    elif member.issym() or member.islnk():
        found.links += 1
    else:
        found.files += 1
        found.bytes += member.size


def to_zip(source: BinaryIO, target: BinaryIO) -> None:
    """The same content as a zip: modes and symbolic links are kept, hard links become links.

    The tar comes from a sandbox, so names that lead out of the directory are refused: the user may
    unpack the zip with a program that follows them.
    """
    count, links = 0, _Links()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
        for archive, member in members(source):
            name = posixpath.normpath(member.name)
            if name == ".":
                continue
            _check_for_zip(member, links)
            count += 1
            if count > _MOST_IN_ZIP:
                raise LimitExceeded(
                    f"there is more than a zip is made of here: {_MOST_IN_ZIP} files",
                    remediation="ask for format=tar, which has no limit",
                )
            _add(made, archive, member, name)


def _check_for_zip(member: tarfile.TarInfo, links: _Links) -> None:
    name = posixpath.normpath(member.name)
    if _leads_out(name) or links.are_on(name):
        raise Broken(f"the sandbox's archive contains {member.name[:200]!r}, which leads out of it")
    if member.issym() or member.islnk():
        links.add(name)


def _add(
    made: zipfile.ZipFile, archive: tarfile.TarFile, member: tarfile.TarInfo, name: str
) -> None:
    # Names that are no UTF-8 cannot stand in a zip; they are shown escaped.
    name = name.encode("utf-8", "backslashreplace").decode()
    info = zipfile.ZipInfo(f"{name}/" if member.isdir() else name, _moment(member.mtime))
    if info.filename in made.NameToInfo:
        raise Broken(f"the sandbox's archive contains {member.name[:200]!r} twice")
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = _attributes(member)
    if member.isdir():
        made.writestr(info, b"")
    elif member.issym() or member.islnk():
        made.writestr(info, _link(member).encode("utf-8", "surrogateescape"))
    elif (content := archive.extractfile(member)) is not None:
        with made.open(info, "w", force_zip64=True) as entry:
            while data := content.read(_CHUNK):
                entry.write(data)


def _link(member: tarfile.TarInfo) -> str:
    if member.issym():
        return member.linkname
    return posixpath.relpath(member.linkname or ".", posixpath.dirname(member.name) or ".")


def _moment(mtime: float) -> tuple[int, int, int, int, int, int]:
    """What a zip can say: from 1980 to 2107."""
    try:
        moment = time.gmtime(mtime)
    except (OverflowError, ValueError, OSError):
        return _ZIP_EPOCH
    return moment[:6] if 1980 <= moment.tm_year <= 2107 else _ZIP_EPOCH


def _attributes(member: tarfile.TarInfo) -> int:
    if member.issym() or member.islnk():
        return 0o120777 << 16
    if member.isdir():
        return (0o040000 | member.mode & 0o7777) << 16 | 0x10
    return (0o100000 | member.mode & 0o7777) << 16


def malformed(why: str) -> InvalidRequest:
    return InvalidRequest(
        f"the archive cannot be used: {why}", remediation="send a whole tar or tar.gz"
    )


def _refuse_sparse() -> NoReturn:
    raise InvalidRequest(
        "the archive cannot be used: it has sparse files",
        remediation="make it without tar's --sparse",
    )


def _dangerous(member: tarfile.TarInfo, why: str) -> InvalidRequest:
    name = member.name.encode("utf-8", "backslashreplace").decode()[:200]
    return InvalidRequest(
        f"nothing was unpacked: {name!r} {why}",
        remediation="make the archive with relative names, such as `tar -C DIRECTORY -c .`",
    )
