"""Files of a team's sandboxes: read, written, listed, moved, removed, watched."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from typing import TypeVar

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import InvalidRequest, NotFound, PaddockError, TooLarge
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal
from paddock.guest_client.files import Entry, FileEvent, Walk
from paddock.ports.clock import Clock
from paddock.ports.store import Store
from paddock.services.file_limits import FilesConfig, capped, check_path
from paddock.services.inside import Entered, Inside
from paddock.services.transfers import Part, RangeNotSatisfiable, Span

T = TypeVar("T")
_LONGEST_NOTED = 500
_ALL = Span()


@dataclass(frozen=True, slots=True)
class Place:
    """A path in a sandbox and whose rights count there. Relative ones start at the home."""

    sandbox: str
    path: str
    user: str = ""
    wake: bool = False
    """Whether a sandbox that sleeps may be woken: for what is only read, where that cannot be had
    of it asleep."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a sandbox was while something of it was read."""

    state: SandboxState
    woken: bool

    @classmethod
    def of(cls, entered: Entered) -> "Sight":
        return cls(SandboxState.RUNNING if entered.woken else entered.sandbox.state, entered.woken)


@dataclass(frozen=True, slots=True)
class Download:
    """A file on its way out."""

    part: Part
    pieces: AsyncIterator[bytes]
    sight: Sight


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file that is small and text."""

    entry: Entry
    text: str
    tag: str
    sight: Sight


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of what is in a directory."""

    entries: Sequence[Entry]
    closed: tuple[str, ...]
    """Names of directories that were not entered."""
    after: str
    """The walk's `after` for what follows; empty when this was all."""
    sight: Sight


class Files:
    """What is done with files on somebody's behalf; what changes them is in the audit log."""

    def __init__(self, inside: Inside, store: Store, clock: Clock, config: FilesConfig) -> None:
        self._inside = inside
        self._store = store
        self._clock = clock
        self._config = config

    async def read(self, principal: Principal, place: Place, span: Span = _ALL) -> Download:
        """All of it or the part that `span` names, never whole in memory."""
        pieces = self._read(principal, place, span)
        # Whoever never reads on leaves the rest to the generator's own end.
        sight, part = await anext(pieces), await anext(pieces)
        assert isinstance(sight, Sight)
        assert isinstance(part, Part)
        return Download(part, _only_bytes(pieces), sight)

    async def _read(
        self, principal: Principal, place: Place, span: Span
    ) -> AsyncGenerator[Sight | Part | bytes, None]:
        async with self._look(principal, place) as entered:
            yield Sight.of(entered)
            try:
                async for item in entered.guest.open_file(place.path, place.user, span):
                    yield item
            except InvalidRequest:
                entry = await _stat_or_none(entered, place) if span.range else None
                if entry is not None:
                    raise RangeNotSatisfiable(place.path, entry.size) from None
                raise
            except NotFound as error:
                raise _absent(error) from error

    async def read_text(self, principal: Principal, place: Place) -> TextFile:
        """For people to look at: TooLarge beyond the limit, InvalidRequest for what is no text."""
        most = self._config.max_text_kib << 10
        async with self._look(principal, place) as entered:
            sight = Sight.of(entered)
            entry = await self._stat(entered, place)
            if entry.size > most:
                raise _no_small_text(place.path, entry.size, most)
            tag, data = "", b""
            async for item in entered.guest.open_file(place.path, place.user, _ALL):
                if isinstance(item, Part):
                    tag = item.tag
                    continue
                data += item
                if len(data) > most:
                    raise _no_small_text(place.path, len(data), most)
        try:
            return TextFile(replace(entry, size=len(data)), data.decode(), tag, sight)
        except UnicodeDecodeError as error:
            raise InvalidRequest(
                f"{_noted(place.path)} is no UTF-8 text: {error.reason} at byte {error.start}",
                remediation="download it instead: GET …/files?path=…",
            ) from None

    async def write(
        self, principal: Principal, place: Place, pieces: AsyncIterator[bytes]
    ) -> Entry:
        """The file with this content; when the pieces break off, what was there before stays."""
        check_path(place.path)
        pieces = capped(pieces, self._config.max_upload_mib)
        async with self._inside.enter(principal, place.sandbox, "file", wake=place.wake) as entered:
            await upload(entered, place, pieces)
            await self._note(principal, entered, "file.write", place.path)
            return await entered.guest.files.stat(place.path, user=place.user)

    async def remove(self, principal: Principal, place: Place) -> None:
        """With everything below it. Absent is success."""
        check_path(place.path)
        async with self._inside.enter(principal, place.sandbox, "file") as entered:
            await entered.guest.files.remove(place.path, user=place.user)
            await self._note(principal, entered, "file.remove", place.path)

    async def list(
        self, principal: Principal, place: Place, walk: Walk, closed: Sequence[str] | None = None
    ) -> Listed:
        """A page of a directory. What is not entered is what the settings say, unless `closed`."""
        names = self._config.excluded if closed is None else tuple(closed)
        async with self._look(principal, place) as entered:
            try:
                entries, after = await entered.guest.files.list_page(
                    place.path, replace(walk, closed=names), user=place.user
                )
            except NotFound as error:
                raise _absent(error) from error
        return Listed(entries, names, after, Sight.of(entered))

    async def stat(self, principal: Principal, place: Place) -> tuple[Entry, Sight]:
        async with self._look(principal, place) as entered:
            return await self._stat(entered, place), Sight.of(entered)

    def _look(self, principal: Principal, place: Place) -> AbstractAsyncContextManager[Entered]:
        return self._inside.look(principal, place.sandbox, "file", wake=place.wake)

    async def _stat(self, entered: Entered, place: Place) -> Entry:
        try:
            return await entered.guest.files.stat(place.path, user=place.user)
        except NotFound as error:
            raise _absent(error) from error

    async def move(self, principal: Principal, source: Place, destination: str) -> Entry:
        """What is at the destination is replaced, if it is no directory with something in it."""
        check_path(source.path)
        check_path(destination)
        async with self._inside.enter(principal, source.sandbox, "file") as entered:
            try:
                moved = await entered.guest.files.move(source.path, destination, user=source.user)
            except NotFound as error:
                raise _absent(error) from error
            await self._note(principal, entered, "file.move", source.path, to=destination)
            return moved

    async def make_directory(self, principal: Principal, place: Place) -> Entry:
        """Those above it are made too. Conflict when it exists."""
        check_path(place.path)
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
    """Send a file."""
    files = entered.guest.files
    await told(pieces, lambda sent: files.write_stream(place.path, sent, user=place.user))


async def told(
    pieces: AsyncIterator[bytes], send: Callable[[AsyncIterator[bytes]], Awaitable[T]]
) -> T:
    """What goes wrong with the pieces is told as it is, not as a lost connection."""
    broken: list[BaseException] = []

    async def watched() -> AsyncIterator[bytes]:
        try:
            async for piece in pieces:
                yield piece
        except BaseException as error:
            broken.append(error)
            raise

    try:
        return await send(watched())
    except PaddockError:
        if broken:
            raise broken[0] from None
        raise


async def _only_bytes(pieces: AsyncGenerator[Sight | Part | bytes, None]) -> AsyncIterator[bytes]:
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


def _no_small_text(path: str, size: int, most: int) -> TooLarge:
    return TooLarge(
        f"{_noted(path)} has {size} bytes, and text is shown up to {most}",
        remediation="download it instead: GET …/files?path=…, with Range for a part of it",
    )


def _absent(error: NotFound) -> NotFound:
    return NotFound(
        error.message, remediation="check the path; a relative one starts at the user's home"
    )


def _noted(text: str) -> str:
    """As text that any database keeps, whatever bytes the name has."""
    return text.encode("utf-8", "backslashreplace").decode()[:_LONGEST_NOTED]
