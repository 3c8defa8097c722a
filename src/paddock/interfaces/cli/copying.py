"""Files and directories of this machine, copied into a sandbox."""

import asyncio
import posixpath
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from paddock.domain.errors import Refused
from paddock.guest_client import Guest
from paddock.interfaces.cli.params import Copy

_CHUNK = 1 << 20
_UNPACK_S = 3600.0


async def copy_in(guest: Guest, copies: Iterable[Copy], *, user: str, workdir: str) -> None:
    """A file becomes DST (or DST/name for `DST/`), a directory's content becomes that of DST."""
    for copy in copies:
        target = copy.target if copy.target == workdir else posixpath.join(workdir, copy.target)
        if copy.source.is_dir():
            await _copy_tree(guest, copy.source, target, user)
        else:
            target += copy.source.name if target.endswith("/") else ""
            await _copy_file(guest, copy.source, target, user)


async def _copy_file(guest: Guest, source: Path, target: str, user: str) -> None:
    await guest.files.write_stream(target, _pieces(source), user=user)
    if source.stat().st_mode & 0o100:
        await _do(guest, ["chmod", "+x", "--", target], user)


async def _copy_tree(guest: Guest, source: Path, target: str, user: str) -> None:
    """As one archive: modes, links and odd names arrive as they are, and quickly."""
    with tempfile.TemporaryDirectory(prefix="paddock-") as directory:
        archive = Path(directory) / "copy.tar"
        await asyncio.to_thread(_pack, source, archive)
        await _do(guest, ["mkdir", "-p", "--", target], user)
        packed = posixpath.join("/tmp", f".{Path(directory).name}.tar")  # noqa: S108 - the guest's
        await guest.files.write_stream(packed, _pieces(archive), user=user)
    try:
        await _do(guest, ["tar", "-xo", "-f", packed, "-C", target], user)
    finally:
        await guest.files.remove(packed, user=user)


def _pack(source: Path, archive: Path) -> None:
    with tarfile.open(archive, "w") as tar:
        tar.add(source, arcname=".")


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, _CHUNK):
            yield piece


async def _do(guest: Guest, argv: list[str], user: str) -> None:
    result = await guest.exec(argv, user=user or None, timeout=_UNPACK_S)
    if result.exit_code != 0:
        said = result.stderr.decode(errors="replace").strip()
        raise Refused(
            f"copying into the sandbox failed: {' '.join(argv)}: {said}",
            remediation="copy to where the user may write, such as its home directory",
        )
