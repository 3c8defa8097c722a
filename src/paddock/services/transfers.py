"""The guest's client with what transfers need: byte ranges, and the moment a watch stands."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import aiohttp

from paddock.domain.errors import Unavailable
from paddock.domain.guest import GuestAddress
from paddock.guest_client import answers
from paddock.guest_client.client import Guest
from paddock.guest_client.commands import Commands
from paddock.guest_client.files import Change, FileEvent, Files
from paddock.guest_client.messages import Messages
from paddock.guest_client.processes import Processes
from paddock.guest_client.runs import Runs
from paddock.guest_client.transport import Transport

_CHANGES = {f"EVENT_TYPE_{change.name}": change for change in Change}
_WATCHING = "filesystem.Filesystem/WatchDir"


@dataclass(frozen=True, slots=True)
class Part:
    """What of a file is sent: all of it, or a range."""

    length: int | None
    """None where nobody knows beforehand, as for a file of /proc."""
    content_range: str = ""
    """Empty when it is the whole file."""


class RangeNotSatisfiable(Exception):
    """The range begins beyond the file's end, for which HTTP has an answer of its own."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(f"{path} has {size} bytes: nothing of it is in that range")
        self.size = size


class LeavingTransport(Transport):
    """A session whose end is told to those who still read: aiohttp would leave them waiting."""

    def __init__(self, address: GuestAddress) -> None:
        super().__init__(address)
        self._reading: set[aiohttp.ClientResponse] = set()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for answer in self._reading:
            answer.content.set_exception(aiohttp.ClientConnectionError("the session has ended"))
        await super().__aexit__(kind, error, trace)

    @asynccontextmanager
    async def request(
        self, verb: str, path: str, **more: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        session = self._session
        if session is not None and session.closed:
            raise Unavailable(f"{path}: the session with the guest has ended")
        async with super().request(verb, path, **more) as answer:
            self._reading.add(answer)
            try:
                yield answer
            finally:
                self._reading.discard(answer)


class TransferGuest(Guest):
    """A guest whose files are read in part and watched from a known moment on."""

    def __init__(self, address: GuestAddress) -> None:
        super().__init__(address)
        transport = self._transport = LeavingTransport(address)
        self.commands = Commands(transport)
        self.files = Files(transport)
        self.runs = Runs(transport)
        self.messages = Messages(transport)
        self.processes = Processes(transport)

    async def open_file(self, path: str, user: str, span: str) -> AsyncIterator[Part | bytes]:
        """First the part, then its bytes; `span` is a Range header's value or empty."""
        query = {"path": path, "username": user} if user else {"path": path}
        headers = {"range": span} if span else {}
        request = self._transport.request("GET", "files", headers=headers, query=query)
        async with request as answer:
            yield Part(answer.content_length, answer.headers.get("content-range", ""))
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
