"""Files that are handed in for builds: kept for a while, because the next build asks for them."""

import asyncio
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from paddock.domain.errors import InvalidRequest, NotFound, TooLarge

MOST_BYTES = 2 << 30
_KEPT_S = 7 * 86400.0
_HASH = re.compile(r"[0-9a-f]{64}")
_PIECE = 256 << 10


class BuildFiles:
    """One file for each team and hash, in a directory of the control plane."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def has(self, team_id: str, digest: str) -> bool:
        return self._path(team_id, digest).is_file()

    async def keep(self, team_id: str, digest: str, data: AsyncIterator[bytes]) -> None:
        """Whole or not at all; what nobody has handed in for a week goes."""
        path = self._path(team_id, digest)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with os.fdopen(handle, "wb") as file:
                async for piece in _bounded(data):
                    await asyncio.to_thread(file.write, piece)
            Path(draft).rename(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
        await asyncio.to_thread(_forget_old, path.parent, time.time() - _KEPT_S)

    async def read(self, team_id: str, digest: str) -> AsyncIterator[bytes]:
        path = self._path(team_id, digest)
        if not path.is_file():
            raise NotFound(
                f"the files {digest[:12]}… were not handed in", remediation="upload them first"
            )
        os.utime(path)
        with path.open("rb") as file:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                yield piece

    def _path(self, team_id: str, digest: str) -> Path:
        if not _HASH.fullmatch(digest):
            raise InvalidRequest(f"{digest[:80]!r} is no SHA-256 in lower case")
        return self._place / team_id / digest


async def _bounded(data: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async for piece in data:
        size += len(piece)
        if size > MOST_BYTES:
            raise TooLarge(
                f"the files of one step have more than {MOST_BYTES >> 30} GiB",
                remediation="leave out what the build does not need",
            )
        yield piece


def _forget_old(folder: Path, before: float) -> None:
    for path in folder.iterdir():
        if path.stat().st_mtime < before:
            path.unlink(missing_ok=True)
