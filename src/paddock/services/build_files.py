"""Files that are handed in for builds: kept for a while, because the next build asks for them."""

import asyncio
import hashlib
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from paddock.domain.errors import InvalidRequest, NotFound, QuotaExceeded, TooLarge
from paddock.domain.quota import MIB, Usage
from paddock.ports.store import Store, Transaction
from paddock.services.quotas import check_quota

MOST_BYTES = 2 << 30
MOST_OF_TEAM = 16 << 30
"""A limit that applies with and without a quota: files are on the control plane's disk."""
_KEPT_S = 7 * 86400.0
_SMALLEST = 4096
"""The least that a file counts, in bytes."""
_CHECKED_EVERY = 16 << 20
_HASH = re.compile(r"[0-9a-f]{64}")
_PIECE = 256 << 10


@dataclass(frozen=True, slots=True)
class BuildFile:
    """The files of one build step.

    `digest` is computed by the client. It covers data that the archive does not contain, such as
    sizes of directories, so the server cannot verify it. Only the uploader can therefore use it.
    """

    team_id: str
    holder: str
    digest: str

    @property
    def key(self) -> str:
        if not _HASH.fullmatch(self.digest):
            raise InvalidRequest(f"{self.digest[:80]!r} is no SHA-256 in lower case")
        return hashlib.sha256(f"{self.holder} {self.digest}".encode()).hexdigest()


class BuildFiles:
    """Uploaded build files, in a directory of the control plane."""

    def __init__(self, place: Path, store: Store) -> None:
        self._place = place
        self._store = store
        self._incoming: Counter[str] = Counter()
        """Bytes of uploads in progress, by team."""

    def has(self, file: BuildFile) -> bool:
        return self._path(file).is_file()

    async def keep(
        self, file: BuildFile, data: AsyncIterator[bytes], announced: int | None = None
    ) -> None:
        """Store an upload completely or not at all, and remove files unused for a week.

        If the announced size exceeds the team's quota, nothing is read.
        """
        path, now = self._path(file), time.time()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await asyncio.to_thread(_forget_old, path.parent, now - _KEPT_S)
        await self._store.write(
            lambda tx: tx.quotas.forget_build_files(file.team_id, now - _KEPT_S)
        )
        await self._check(file.team_id, announced or _SMALLEST)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with os.fdopen(handle, "wb") as opened:
                size = await self._written(file.team_id, opened, data)
            await self._store.write(lambda tx: _enter(tx, file, size, now))
            Path(draft).rename(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise

    async def _written(self, team_id: str, opened: BinaryIO, data: AsyncIterator[bytes]) -> int:
        """Write an upload and return its size. Check room again and again: uploads are parallel."""
        size, next_check = 0, _CHECKED_EVERY
        try:
            async for piece in data:
                size += len(piece)
                self._incoming[team_id] += len(piece)
                if size > MOST_BYTES:
                    raise TooLarge(
                        f"the files of one step have more than {MOST_BYTES >> 30} GiB",
                        remediation="leave out what the build does not need",
                    )
                if size >= next_check:
                    next_check += _CHECKED_EVERY
                    await self._check(team_id, self._incoming[team_id])
                await asyncio.to_thread(opened.write, piece)
        finally:
            self._incoming[team_id] -= size
        return size

    async def _check(self, team_id: str, size: int) -> None:
        await self._store.read(lambda tx: _check_room(tx, team_id, size))

    async def read(self, file: BuildFile) -> AsyncIterator[bytes]:
        path = self._path(file)
        if not path.is_file():
            raise NotFound(
                f"you have not uploaded the files {file.digest[:12]}…",
                remediation="upload them first",
            )
        os.utime(path)
        size, now = path.stat().st_size, time.time()
        await self._store.write(
            lambda tx: tx.quotas.put_build_file(file.team_id, file.key, size, now)
        )
        with path.open("rb") as opened:
            while piece := await asyncio.to_thread(opened.read, _PIECE):
                yield piece

    def _path(self, file: BuildFile) -> Path:
        return self._place / file.team_id / file.key


def _check_room(tx: Transaction, team_id: str, size: int) -> None:
    check_quota(tx, team_id, Usage(disk_mib=size / MIB))
    used = tx.quotas.build_file_bytes(team_id)
    if used + size > MOST_OF_TEAM:
        raise QuotaExceeded(
            f"your team may store {MOST_OF_TEAM >> 30} GiB of files for builds: it has "
            f"{used / MIB:.0f} MiB, and {size / MIB:.0f} MiB more were sent",
            remediation="wait: files that no build uses for "
            f"{_KEPT_S / 86400:.0f} days are removed",
        )


def _enter(tx: Transaction, file: BuildFile, size: int, now: float) -> None:
    tx.quotas.remove_build_file(file.team_id, file.key)  # it is replaced by this one
    _check_room(tx, file.team_id, max(size, _SMALLEST))
    tx.quotas.put_build_file(file.team_id, file.key, max(size, _SMALLEST), now)


def _forget_old(folder: Path, before: float) -> None:
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another upload has just renamed its draft
            if path.stat().st_mtime < before:
                path.unlink()
