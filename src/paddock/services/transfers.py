"""The guest's client with what transfers need: byte ranges, and the moment a watch stands."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from paddock.guest_client import answers
from paddock.guest_client.client import Guest
from paddock.guest_client.files import Change, FileEvent

_CHANGES = {f"EVENT_TYPE_{change.name}": change for change in Change}
_TAG = re.compile(r'"[0-9a-f-]+"')
_WATCHING = "filesystem.Filesystem/WatchDir"


@dataclass(frozen=True, slots=True)
class Part:
    """What of a file is sent: all of it, or a range."""

    length: int | None
    """None where nobody knows beforehand, as for a file of /proc."""
    content_range: str = ""
    """Empty when it is the whole file."""
    tag: str = ""
    """Another one whenever the content has changed; empty where nobody can tell."""


@dataclass(frozen=True, slots=True)
class Span:
    """What of a file is wanted, in HTTP's words."""

    range: str = ""
    """A Range header; empty is all of it."""
    only_of: str = ""
    """An If-Range header: of any other version all of it is wanted."""


class RangeNotSatisfiable(Exception):
    """The range begins beyond the file's end, for which HTTP has an answer of its own."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(f"{path} has {size} bytes: nothing of it is in that range")
        self.size = size


class TransferGuest(Guest):
    """A guest whose files are read in part and watched from a known moment on."""

    async def open_file(self, path: str, user: str, span: Span) -> AsyncIterator[Part | bytes]:
        """First the part, then its bytes."""
        query = {"path": path, "username": user} if user else {"path": path}
        asked = {"range": span.range, "if-range": span.only_of}
        headers = {name: value for name, value in asked.items() if value}
        request = self._transport.request("GET", "files", headers=headers, query=query)
        async with request as answer:
            given = answer.headers
            length = answer.content_length
            yield Part(length, given.get("content-range", ""), _tag(given.get("etag", "")))
            async for data in answer.content.iter_any():
                yield data

    async def watch(self, path: str, user: str, *, recursive: bool) -> AsyncIterator[FileEvent]:
        """An empty name first, as soon as nothing more can be missed; then every change."""
        message = {"path": path, "recursive": recursive}
        async for frame in self._transport.stream(_WATCHING, message, user=user):
            if "start" in frame:
                yield FileEvent("", Change.CREATE)
            elif "filesystem" in frame:
                event = answers.inner(frame, "filesystem")
                kind = _CHANGES.get(answers.text(event, "type"))
                if kind is not None:
                    yield FileEvent(answers.text(event, "name"), kind)


def _tag(said: str) -> str:
    """A guest may say anything; what is no entity tag does not go on."""
    return said if len(said) <= 100 and _TAG.fullmatch(said) else ""
