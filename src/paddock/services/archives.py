"""Directories of a sandbox as archives: taken out and put in as streams."""

import asyncio
import posixpath
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Any

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import (
    Broken,
    Conflict,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PaddockError,
    Unsupported,
)
from paddock.domain.guest import CommandResult
from paddock.domain.team import Principal
from paddock.guest_client.commands import Ended, Output, Started
from paddock.guest_client.files import Entry, FileKind
from paddock.ports.clock import Clock
from paddock.ports.store import Store
from paddock.services import tarball
from paddock.services.bridge import Pipe, Source, converted, in_own_thread
from paddock.services.file_limits import FilesConfig, capped, check_path
from paddock.services.files import Place, told
from paddock.services.inside import Entered, Inside
from paddock.services.tarball import Contents

_LONGEST_S = 3600.0
_CHANGED_MEANWHILE = 1
"""GNU tar's code for a file that changed while it was read; what was read is there."""
_NO_PROGRAM = 127
_SAID = 2000


class ArchiveFormat(StrEnum):
    """What an archive can be."""

    TAR = "tar"
    ZIP = "zip"


class Archives:
    """Done by the sandbox's own `tar`, with the user's rights."""

    def __init__(self, inside: Inside, store: Store, clock: Clock, config: FilesConfig) -> None:
        self._inside = inside
        self._store = store
        self._clock = clock
        self._config = config

    def excluded(self, form: ArchiveFormat, wanted: Sequence[str] | None) -> tuple[str, ...]:
        """A tar is a copy and has everything, a zip is for people and has no caches; unless said.

        An empty name says that nothing is left out.
        """
        if wanted is None:
            return self._config.excluded if form is ArchiveFormat.ZIP else ()
        return tuple(name for name in wanted if name)

    async def pack(
        self, principal: Principal, place: Place, form: ArchiveFormat, without: Sequence[str] = ()
    ) -> AsyncIterator[bytes]:
        """A directory's content, or one file. It has begun well when this returns.

        Links are in it as links: nothing that one leads to outside of it comes along.
        """
        pieces = self._pack(principal, place, without)
        first = await anext(pieces)
        whole = _after(first, pieces)
        return whole if form is ArchiveFormat.TAR else converted(whole, tarball.to_zip)

    async def _pack(
        self, principal: Principal, place: Place, without: Sequence[str]
    ) -> AsyncGenerator[bytes, None]:
        async with self._inside.enter(
            principal, place.sandbox, "archive", wake=place.wake
        ) as entered:
            directory, name = await _packed(entered, place)
            left_out = [f"--exclude={pattern}" for pattern in without]
            argv = ("tar", *left_out, "-cf", "-", "-C", directory, name)
            async for piece in _output(entered, argv, place.user):
                yield piece

    async def unpack(
        self, principal: Principal, place: Place, pieces: AsyncIterator[bytes]
    ) -> Contents:
        """Put a tar's content there: all of it, or nothing when it is broken or leads outside."""
        check_path(place.path)
        pieces = capped(tarball.unpacked(pieces), self._config.max_upload_mib)
        async with self._inside.enter(
            principal, place.sandbox, "archive", wake=place.wake
        ) as entered:
            directory, made = await _target(entered, place)
            try:
                contents, ran = await _send(entered, replace(place, path=directory), pieces)
                if ran.exit_code != 0:
                    raise _not_unpacked(ran)
            except BaseException:
                await asyncio.shield(_remove(entered, made, place.user))
                raise
            await self._note(principal, entered, place, contents)
            return contents

    async def _note(
        self, principal: Principal, entered: Entered, place: Place, contents: Contents
    ) -> None:
        path = place.path.encode("utf-8", "backslashreplace").decode()[:500]
        entry = AuditEntry(
            team_id=principal.team_id,
            actor=principal.actor,
            action="file.unpack",
            subject=entered.sandbox.id,
            at=self._clock.wall(),
            detail={"path": path, "files": contents.files},
        )
        await self._store.write(lambda tx: tx.audit.append([entry]))


async def _packed(entered: Entered, place: Place) -> tuple[str, str]:
    """Where tar starts and what it takes: a directory's content, or the file by its name."""
    try:
        entry = await entered.guest.files.stat(place.path, user=place.user)
        if await _is_directory(entered, entry, place):
            return entry.path, "."
    except NotFound as error:
        raise NotFound(error.message, remediation="check the path") from error
    directory, name = posixpath.split(entry.path)
    return directory or "/", f"./{name}"


async def _is_directory(entered: Entered, entry: Entry, place: Place) -> bool:
    if entry.kind is not FileKind.SYMLINK or not entry.symlink_target:
        return entry.kind is FileKind.DIRECTORY
    target = await entered.guest.files.stat(entry.symlink_target, user=place.user)
    return target.kind is FileKind.DIRECTORY


async def _output(
    entered: Entered, argv: tuple[str, ...], user: str
) -> AsyncGenerator[bytes, None]:
    """What a program writes, as it writes it. It ends with whoever reads."""
    events = entered.guest.start(argv, user=user or None, timeout=_LONGEST_S)
    pid, said, ended = 0, b"", None
    try:
        async for event in events:
            if isinstance(event, Started):
                pid = event.pid
            elif isinstance(event, Ended):
                ended = event
            elif isinstance(event, Output) and event.stream == "stdout":
                yield event.data
            elif isinstance(event, Output):
                said = (said + event.data)[:_SAID]
    except InvalidRequest as error:
        raise _explained(error) from error
    finally:
        if pid and ended is None:
            with suppress(PaddockError):
                await asyncio.shield(entered.guest.commands.kill(pid))
    if ended is None or ended.exit_code not in (0, _CHANGED_MEANWHILE):
        raise _not_packed(ended, said)


async def _after(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        async for piece in rest:
            yield piece


async def _target(entered: Entered, place: Place) -> tuple[str, Sequence[str]]:
    """The directory to unpack in, made when it is missing; those that were made, deepest first."""
    files = entered.guest.files
    made: Sequence[str] = ()
    try:
        entry = await files.stat(place.path, user=place.user)
    except NotFound:
        missing = await _missing(entered, place)
        entry = await files.make_dir(place.path, user=place.user)
        made = [entry.path, *_above(entry.path)][:missing]
    if not await _is_directory(entered, entry, place):
        raise Conflict(
            f"{entry.path} is a file; an archive is unpacked in a directory",
            remediation="name a directory, or one that does not exist yet",
        )
    return entry.path, made


async def _missing(entered: Entered, place: Place) -> int:
    """How many directories have to be made: it, and so many above it."""
    count = 1
    for path in _above(place.path):
        try:
            await entered.guest.files.stat(path, user=place.user)
        except NotFound:
            count += 1
            continue
        break
    return count


def _above(path: str) -> Iterator[str]:
    while (above := posixpath.dirname(path.rstrip("/"))) not in ("", "/", path):
        yield above
        path = above


async def _remove(entered: Entered, made: Sequence[str], user: str) -> None:
    """Directories without a content, as they were made: what somebody has put there stays."""
    with suppress(PaddockError):
        for path in made:
            await entered.guest.posix.remove(path, user, directory=True)


async def _send(
    entered: Entered, place: Place, pieces: AsyncIterator[bytes]
) -> tuple[Contents, CommandResult]:
    """Unpacked only if the whole archive came and may be."""
    pipe = Pipe()
    looking = in_own_thread(partial(_look, pipe))

    async def checked() -> AsyncIterator[bytes]:
        async for piece in pieces:
            if not piece:
                continue
            await _first_of(pipe.put(piece), looking)
            yield piece
        await _first_of(pipe.put(b""), looking)
        # The archive is not complete before the verdict is known.
        await asyncio.shield(looking)

    try:
        ran = await told(checked(), partial(_unpack, entered, place))
        return await looking, ran
    finally:
        pipe.close()
        with suppress(Exception):
            await looking


async def _unpack(entered: Entered, place: Place, sent: AsyncIterator[bytes]) -> CommandResult:
    try:
        return await entered.guest.files.unpack(place.path, sent, user=place.user)
    except InvalidRequest as error:
        raise _explained(error) from error


def _look(pipe: Pipe) -> Contents:
    return tarball.look_through(Source(pipe))  # type: ignore[arg-type]


async def _first_of(put: Coroutine[None, None, None], looking: asyncio.Future[Contents]) -> None:
    """Hand a piece over; the looker that has found a fault takes no more."""
    putting = asyncio.ensure_future(put)
    both: set[asyncio.Future[Any]] = {putting, looking}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not putting.done():
            putting.cancel()
    if looking.done():
        looking.result()


def _explained(error: InvalidRequest) -> PaddockError:
    """So the guest says that there is no such program; arguments of ours it can only like."""
    return _no_tar() if "not found" in error.message else error


def _not_packed(ended: Ended | None, said: bytes) -> PaddockError:
    text = said.decode(errors="replace").strip() or (ended.status if ended else "it broke off")
    if ended is not None and ended.exit_code == _NO_PROGRAM:
        return _no_tar()
    return Conflict(
        f"tar could not read all of it: {text}", remediation="ask for it as a user who may read it"
    )


def _not_unpacked(ran: CommandResult) -> PaddockError:
    said = (ran.stderr or ran.stdout).decode(errors="replace").strip()[:_SAID]
    if ran.exit_code == _NO_PROGRAM:
        return _no_tar()
    if "No space left" in said or "Disk quota" in said:
        return LimitExceeded(f"the sandbox's disk is full: {said}", remediation="make room in it")
    if ran.exit_code < 0:
        return Broken(f"tar was ended: {ran.reason}")
    return Conflict(
        f"tar could not unpack all of it: {said}",
        remediation="look at what is there already, and at who may write there",
    )


def _no_tar() -> Unsupported:
    return Unsupported(
        "the sandbox has no tar program", remediation="install tar in its template, or send files"
    )
