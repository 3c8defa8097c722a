"""The event log: page by page, and as it grows."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from paddock.domain.errors import Unavailable
from paddock.interfaces.client.following import Message, messages, streaming
from paddock.interfaces.client.results import Event, read
from paddock.interfaces.client.server import Pauses, Server


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
    server: Server, path: str, query: Mapping[str, Any], *, after: int | None
) -> AsyncIterator[Event]:
    """A stream of events, taken up where it broke."""
    pauses, last = Pauses(), after
    while True:
        source = messages(server, streaming("GET", path, query={**query, "after": last}))
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
