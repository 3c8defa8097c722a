"""Files of a team's sandboxes: read, written, listed, moved, removed, watched."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import InvalidRequest, LimitExceeded, NotFound, PaddockError
from paddock.domain.team import Principal
from paddock.guest_client.files import Entry, FileEvent
from paddock.ports.clock import Clock
from paddock.ports.store import Store
from paddock.services.inside import Entered, Inside
from paddock.services.transfers import Part, RangeNotSatisfiable

_LONGEST_NOTED = 500


@dataclass(frozen=True, slots=True)
class Place:
    """A path in a sandbox and whose rights count there. Relative ones start at the home."""

    sandbox: str
    path: str
    user: str = ""


@dataclass(frozen=True, slots=True)
class Download:
    """A file on its way out."""

    part: Part
    pieces: AsyncIterator[bytes]


class Files:
    """What is done with files on somebody's behalf; what changes them is in the audit log."""

    def __init__(self, inside: Inside, store: Store, clock: Clock) -> None:
        self._inside = inside
        self._store = store
        self._clock = clock

    async def read(self, principal: Principal, place: Place, span: str = "") -> Download:
        """All of it or the part that `span` (a Range header) names, never whole in memory."""
        pieces = self._read(principal, place, span)
        # Whoever never reads on leaves the rest to the generator's own end.
        part = await anext(pieces)
        assert isinstance(part, Part)
        return Download(part, _only_bytes(pieces))

    async def _read(
        self, principal: Principal, place: Place, span: str
    ) -> AsyncGenerator[Part | bytes, None]:
        async with self._inside.enter(principal, place.sandbox, "file") as entered:
            try:
                async for item in entered.guest.open_file(place.path, place.user, span):
                    yield item
            except InvalidRequest:
                entry = await _stat_or_none(entered, place) if span else None
                if entry is not None:
                    raise RangeNotSatisfiable(place.path, entry.size) from None
                raise
            except NotFound as error:
                raise _absent(error) from error

    async def write(
        self, principal: Principal, place: Place, pieces: AsyncIterator[bytes]
    ) -> Entry:
        """The file with this content; when the pieces break off, what was there before stays."""
        async with self._inside.enter(principal, place.sandbox, "file") as entered:
            await upload(entered, place, pieces)
            await self._note(principal, entered, "file.write", place.path)
            return await entered.guest.files.stat(place.path, user=place.user)

    async def remove(self, principal: Principal, place: Place) -> None:
        """With everything below it. Absent is success."""
        async with self._inside.enter(principal, place.sandbox, "file") as entered:
            await entered.guest.files.remove(place.path, user=place.user)
            await self._note(principal, entered, "file.remove", place.path)

    async def list(self, principal: Principal, place: Place, depth: int = 1) -> Sequence[Entry]:
        async with self._inside.enter(principal, place.sandbox, "file") as entered:
            try:
                return await entered.guest.files.list(place.path, depth=depth, user=place.user)
            except NotFound as error:
                raise _absent(error) from error
            except LimitExceeded as error:
                raise LimitExceeded(error.message, remediation="list fewer levels") from error

    async def stat(self, principal: Principal, place: Place) -> Entry:
        async with self._inside.enter(principal, place.sandbox, "file") as entered:
            try:
                return await entered.guest.files.stat(place.path, user=place.user)
            except NotFound as error:
                raise _absent(error) from error

    async def move(self, principal: Principal, source: Place, destination: str) -> Entry:
        """What is at the destination is replaced, if it is no directory with something in it."""
        async with self._inside.enter(principal, source.sandbox, "file") as entered:
            try:
                moved = await entered.guest.files.move(source.path, destination, user=source.user)
            except NotFound as error:
                raise _absent(error) from error
            await self._note(principal, entered, "file.move", source.path, to=destination)
            return moved

    async def make_directory(self, principal: Principal, place: Place) -> Entry:
        """Those above it are made too. Conflict when it exists."""
        async with self._inside.enter(principal, place.sandbox, "file") as entered:
            made = await entered.guest.files.make_dir(place.path, user=place.user)
            await self._note(principal, entered, "file.directory", place.path)
            return made

    async def watch(
        self, principal: Principal, place: Place, *, recursive: bool
    ) -> AsyncIterator[FileEvent]:
        """What changes in a directory. It stands when this returns: nothing later is missed."""
        events = self._watch(principal, place, recursive=recursive)
        await anext(events)
        return events

    async def _watch(
        self, principal: Principal, place: Place, *, recursive: bool
    ) -> AsyncGenerator[FileEvent, None]:
        async with self._inside.enter(principal, place.sandbox, "watch") as entered:
            events = entered.guest.watch(place.path, place.user, recursive=recursive)
            try:
                async for event in events:
                    yield event
            except NotFound as error:
                raise _absent(error) from error

    async def _note(
        self, principal: Principal, entered: Entered, action: str, path: str, **more: str
    ) -> None:
        entry = AuditEntry(
            team_id=principal.team_id,
            actor=principal.actor,
            action=action,
            subject=entered.sandbox.id,
            at=self._clock.wall(),
            detail={name: _noted(text) for name, text in {"path": path, **more}.items()},
        )
        await self._store.write(lambda tx: tx.audit.append([entry]))


async def upload(entered: Entered, place: Place, pieces: AsyncIterator[bytes]) -> None:
    """Send a file. What goes wrong with the pieces is told as it is, not as a lost connection."""
    broken: list[BaseException] = []

    async def watched() -> AsyncIterator[bytes]:
        try:
            async for piece in pieces:
                yield piece
        except BaseException as error:
            broken.append(error)
            raise

    try:
        await entered.guest.files.write_stream(place.path, watched(), user=place.user)
    except PaddockError:
        if broken:
            raise broken[0] from None
        raise


async def _only_bytes(pieces: AsyncGenerator[Part | bytes, None]) -> AsyncIterator[bytes]:
    async with aclosing(pieces):
        async for piece in pieces:
            assert isinstance(piece, bytes)
            yield piece


async def _stat_or_none(entered: Entered, place: Place) -> Entry | None:
    try:
        entry = await entered.guest.files.stat(place.path, user=place.user)
    except PaddockError:
        return None
    return entry if entry.kind == "file" else None


def _absent(error: NotFound) -> NotFound:
    return NotFound(
        error.message, remediation="check the path; a relative one starts at the user's home"
    )


def _noted(text: str) -> str:
    """As text that any database keeps, whatever bytes the name has."""
    return text.encode("utf-8", "backslashreplace").decode()[:_LONGEST_NOTED]
