"""Files of a sandbox: read, write, list, move, remove, watch."""

import builtins
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from paddock.domain.errors import Broken, LimitExceeded
from paddock.domain.guest import CommandResult
from paddock.guest_client import answers
from paddock.guest_client.answers import Message
from paddock.guest_client.transport import Transport, read_all

_READ_LIMIT = 256 << 20
_LISTING_LIMIT = 128 << 20
_TRANSFER_TIMEOUT = 3600.0
_SERVICE = "filesystem.Filesystem"
_UNPACK = "paddock.Guest/Unpack"


class FileKind(StrEnum):
    """What a path is; for a link, what it leads to."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


_KINDS = {
    "FILE_TYPE_FILE": FileKind.FILE,
    "FILE_TYPE_DIRECTORY": FileKind.DIRECTORY,
    "FILE_TYPE_SYMLINK": FileKind.SYMLINK,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a file. Bytes of names that are no UTF-8 are lone surrogates."""

    name: str
    path: str
    kind: FileKind
    size: int
    mode: int
    owner: str
    group: str
    modified: datetime
    symlink_target: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Walk:
    """How much of a tree is listed: sorted, each entry before its own children."""

    depth: int = 1
    closed: tuple[str, ...] = ()
    """Directories of such names, which may be patterns, are listed but not entered."""
    after: str = ""
    """Where a listing goes on: the path of its last entry, below the directory."""
    limit: int = 0
    """At most so many; 0 is everything."""

    def message(self) -> Message:
        return {
            "depth": self.depth,
            "closed": list(self.closed),
            "after": self.after,
            "limit": self.limit,
        }


class Change(StrEnum):
    """What happened to a file."""

    CREATE = "create"
    WRITE = "write"
    REMOVE = "remove"
    RENAME = "rename"
    CHMOD = "chmod"


_EVENTS = {f"EVENT_TYPE_{change.name}": change for change in Change}


@dataclass(frozen=True, slots=True)
class FileEvent:
    """One change; the name is relative to the watched directory."""

    name: str
    change: Change


class Files:
    """The sandbox's files. Relative paths start at the user's home."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def read(self, path: str, *, user: str = "", limit: int = _READ_LIMIT) -> bytes:
        """The whole file; LimitExceeded when it is larger than `limit`."""
        async with self._transport.request(
            "GET", "files", query=_query(path, user), timeout=_TRANSFER_TIMEOUT
        ) as answer:
            if answer.content_length is not None and answer.content_length > limit:
                raise LimitExceeded(f"{path} has {answer.content_length} bytes, more than {limit}")
            return await read_all(answer, limit, path)

    async def read_stream(self, path: str, *, user: str = "") -> AsyncIterator[bytes]:
        async with self._transport.request("GET", "files", query=_query(path, user)) as answer:
            async for data in answer.content.iter_any():
                yield data

    async def write(self, path: str, data: bytes, *, user: str = "") -> None:
        """The file with this content, owned by the user; missing directories are made."""
        await self._upload(path, data, user)

    async def write_stream(self, path: str, data: AsyncIterable[bytes], *, user: str = "") -> None:
        """As write(), but never the whole of it in memory."""

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in data:
                yield piece

        await self._upload(path, pieces(), user)

    async def unpack(
        self, path: str, data: AsyncIterable[bytes], *, user: str = ""
    ) -> CommandResult:
        """A tar's content in a directory that is there: nothing before all of it has come.

        Then it goes on also without the caller. How the sandbox's `tar` ended is the answer.
        """

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in data:
                yield piece

        async with self._transport.request(
            "POST",
            _UNPACK,
            headers={"content-type": "application/octet-stream"},
            query=_query(path, user),
            body=pieces(),
            timeout=_TRANSFER_TIMEOUT,
        ) as answer:
            said = answers.parse_object(await read_all(answer, 1 << 20, _UNPACK), _UNPACK)
        code, reason = answers.whole(said, "exitCode"), answers.reason(said)
        return CommandResult(code, b"", answers.binary(said, "stderr"), reason)

    async def list(self, path: str, *, depth: int = 1, user: str = "") -> list[Entry]:
        """Everything; LimitExceeded when that is more than a listing may have."""
        entries, _ = await self.list_page(path, Walk(depth), user=user)
        return entries

    async def list_page(
        self, path: str, walk: Walk, *, user: str = ""
    ) -> tuple[builtins.list[Entry], str]:
        """As much as the walk says, and where the next page begins, if there is one."""
        message = {"path": path, **walk.message()}
        answer = await self._call("ListDir", message, user, _LISTING_LIMIT)
        entries = [_entry(item) for item in answers.many(answer, "entries")]
        return entries, answers.text(answer, "next", "")

    async def stat(self, path: str, *, user: str = "") -> Entry:
        return await self._entry_call("Stat", {"path": path}, user)

    async def make_dir(self, path: str, *, user: str = "") -> Entry:
        """Conflict when it exists already."""
        return await self._entry_call("MakeDir", {"path": path}, user)

    async def move(self, source: str, destination: str, *, user: str = "") -> Entry:
        message = {"source": source, "destination": destination}
        return await self._entry_call("Move", message, user)

    async def remove(self, path: str, *, user: str = "") -> None:
        """With everything below it. Absent is success."""
        await self._call("Remove", {"path": path}, user, timeout=_TRANSFER_TIMEOUT)

    async def watch(
        self, path: str, *, recursive: bool = False, user: str = ""
    ) -> AsyncIterator[FileEvent]:
        """What happens in a directory from now on. LimitExceeded when events were lost."""
        message = {"path": path, "recursive": recursive}
        stream = self._transport.stream(f"{_SERVICE}/WatchDir", message, user=user)
        async for frame in stream:
            if "filesystem" in frame:
                event = answers.inner(frame, "filesystem")
                kind = _EVENTS.get(answers.text(event, "type"))
                if kind is not None:
                    yield FileEvent(answers.text(event, "name"), kind)

    async def _upload(self, path: str, body: bytes | AsyncIterator[bytes], user: str) -> None:
        headers = {"content-type": "application/octet-stream"}
        async with self._transport.request(
            "POST",
            "files",
            headers=headers,
            query=_query(path, user),
            body=body,
            timeout=_TRANSFER_TIMEOUT,
        ) as answer:
            await read_all(answer, 1 << 20, path)

    async def _entry_call(self, method: str, message: Message, user: str) -> Entry:
        return _entry(answers.inner(await self._call(method, message, user), "entry"))

    async def _call(
        self, method: str, message: Message, user: str, limit: int = 4 << 20, timeout: float = 60.0
    ) -> Message:
        return await self._transport.call(
            f"{_SERVICE}/{method}", message, user=user, limit=limit, timeout=timeout
        )


def _query(path: str, user: str) -> dict[str, str]:
    return {"path": path, "username": user} if user else {"path": path}


def _entry(message: Message) -> Entry:
    kind = _KINDS.get(answers.text(message, "type", ""), FileKind.OTHER)
    return Entry(
        name=answers.text(message, "name"),
        path=answers.text(message, "path"),
        kind=FileKind.SYMLINK if answers.flag(message, "isSymlink") else kind,
        size=answers.whole(message, "size", 0),
        mode=answers.whole(message, "mode", 0),
        owner=answers.text(message, "owner", ""),
        group=answers.text(message, "group", ""),
        modified=_time(answers.text(message, "modifiedTime")),
        symlink_target=answers.text(message, "symlinkTarget", "") or None,
        metadata=answers.texts(message, "metadata"),
    )


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise Broken(f"the guest sent {text[:100]!r} as a time") from None
