"""Tar files: of root file systems, which are not trusted, and of builds, which are our own."""

import asyncio
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from paddock.adapters.providers.local.templates.programs import ProgramFailed, need, run
from paddock.domain.errors import InvalidRequest, PaddockError, QuotaExceeded

_ZSTD = b"\x28\xb5\x2f\xfd"
_EXTRACT = ("tar", "--extract", "--numeric-owner", "--same-owner", "--same-permissions")
_FULL = ("--xattrs", "--xattrs-include=*")


async def unpack(archive: Path, root: Path) -> None:
    """A root file system. InvalidRequest when a member would land outside of it.

    Extended attributes of overlays are left out: they would be obeyed.
    """
    need("tar", *(["zstd"] if is_zstd(archive) else []))
    await asyncio.to_thread(check, archive)
    root.mkdir(mode=0o755)
    kept = ("--xattrs", "--xattrs-include=user.*", "--xattrs-include=security.capability")
    try:
        await run([*_EXTRACT, *kept, "--file", str(archive), "--directory", str(root)])
    except ProgramFailed as failure:
        raise _refusal(archive, failure) from failure
    root.chmod(0o755)
    if not any(root.iterdir()):
        raise InvalidRequest(f"the archive {archive} is empty")


def check(archive: Path) -> None:
    """GNU tar defends itself against such members too, but skips them; here they are refused."""
    links: set[PurePosixPath] = set()
    try:
        with _opened(archive) as stream, tarfile.open(fileobj=stream, mode="r|*") as members:
            for member in members:
                path = _checked_path(archive, member.name)
                if member.islnk():
                    _checked_path(archive, member.linkname)
                if through := links.intersection(path.parents):
                    raise _escape(archive, member.name, f"through the link {through.pop()}")
                (links.add if _is_way_out(member, links) else links.discard)(path)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InvalidRequest(
            f"{archive} cannot be read as a tar archive: {error}",
            remediation="use a .tar, .tar.gz, .tar.xz or .tar.zst file",
        ) from error


async def pack(directory: Path, names: list[str], archive: Path) -> None:
    """Some directories of a directory, with everything that root can see."""
    need("tar", "zstd")
    command = ["tar", "--create", "--numeric-owner", "--sparse", *_FULL]
    command += ["--use-compress-program=zstd -T0 -3", "--file", str(archive)]
    try:
        await run([*command, "--directory", str(directory), "--", *names])
    except ProgramFailed as failure:
        raise _refusal(archive, failure) from failure


async def unpack_builds(archive: Path, directory: Path) -> None:
    need("tar", "zstd")
    command = [*_EXTRACT, *_FULL, "--use-compress-program=zstd"]
    try:
        await run([*command, "--file", str(archive), "--directory", str(directory)])
    except ProgramFailed as failure:
        raise _refusal(archive, failure) from failure


def _checked_path(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name.lstrip("/"))
    if ".." in path.parts:
        raise _escape(archive, name, "by climbing with '..'")
    return path


def _is_way_out(member: tarfile.TarInfo, links: set[PurePosixPath]) -> bool:
    """Whether following it could end outside. By itself that is harmless, and common."""
    target = PurePosixPath(member.linkname)
    if member.issym():
        return target.is_absolute() or ".." in target.parts
    return member.islnk() and PurePosixPath(member.linkname.lstrip("/")) in links


def _escape(archive: Path, name: str, how: str) -> InvalidRequest:
    return InvalidRequest(
        f"the archive {archive} was refused: its member {name!r} would land outside, {how}",
        remediation="use an archive of a root file system made by a tool you trust",
    )


def _refusal(archive: Path, failure: ProgramFailed) -> PaddockError:
    if full := failure.mentions("no space left", "disk quota exceeded", "wrote only"):
        return QuotaExceeded(
            f"there is no room for the archive {archive}: {full}",
            remediation="delete sandboxes, snapshots or templates that are no longer needed",
        )
    return InvalidRequest(
        f"tar ended with {failure.status} on {archive}",
        remediation=f"its last lines:\n    {failure.last_lines()}",
    )


def is_zstd(archive: Path) -> bool:
    with archive.open("rb") as file:
        return file.read(4) == _ZSTD


@contextmanager
def _opened(archive: Path) -> Iterator[IO[bytes]]:
    if not is_zstd(archive):
        with archive.open("rb") as file:
            yield file
        return
    with subprocess.Popen(["zstd", "-dc", "--", str(archive)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            yield process.stdout
        finally:
            process.kill()
