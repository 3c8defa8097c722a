"""The event log: page by page, and as it grows."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from paddock.domain.errors import Unavailable
from paddock.interfaces.client.following import Message, messages, streaming
from paddock.interfaces.client.results import Event, read
from paddock.interfaces.client.server import Pauses, Server

_PLACE = "x-paddock-place"
"""Where a stream that begins now begins; it is taken up there if it breaks before any event."""


async def list_events(
    server: Server, subject: str = "", kinds: Sequence[str] = (), *, app: str = ""
) -> AsyncIterator[Event]:
    """What happened so far, oldest first."""
    query = {"subject": subject, "kind": list(kinds), "app": app}
    async for item in server.pages("/v1/events", query):
        yield read(Event, item)


async def follow_events(
    server: Server,
    subject: str = "",
    kinds: Sequence[str] = (),
    *,
    app: str = "",
    after: int | None = None,
) -> AsyncIterator[Event]:
    """What happens from now on, or after an event; across restarts of the server, each once."""
    query = {"subject": subject, "kind": list(kinds), "app": app}
    async for event in followed(server, "/v1/events/stream", query, after=after):
        yield event


async def followed(
    server: Server,
    path: str,
    query: Mapping[str, Any],
    *,
    after: int | None,
    opened: Callable[[], None] | None = None,
) -> AsyncIterator[Event]:
    """A stream of events, taken up where it broke. `opened` is called once nothing that happens
    from then on is missed."""
    pauses, last = Pauses(), after

    def begin(headers: Mapping[str, str]) -> None:
        nonlocal last
        if last is None and (place := headers.get(_PLACE, "")).isdigit():
            last = int(place)
        if opened is not None:
            opened()

    while True:
        source = messages(server, streaming("GET", path, query={**query, "after": last}), begin)
        failure = Unavailable(f"{server.url} ended the stream of events")
        try:
            async for event in events_of(source):
                pauses.begin()
                last = event.seq
                yield event
        except Unavailable as error:
            failure = error
        await pauses.wait(failure, server.patience_s(failure))


async def events_of(source: AsyncGenerator[Message, None]) -> AsyncIterator[Event]:
    """The messages of a stream, which is closed at the end."""
    async with aclosing(source):
        async for message in source:
            yield read(Event, message)
