"""The event log: page by page, and as it grows."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
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
    pauses, last = Pauses(), after
    while True:
        query: dict[str, Any] = {"subject": subject, "kind": list(kinds), "app": app}
        query["after"] = last
        source = messages(server, streaming("GET", "/v1/events/stream", query=query))
        failure = Unavailable(f"{server.url} ended the stream of events")
        try:
            async for event in _events(source):
                pauses.begin()
                last = event.seq
                yield event
        except Unavailable as error:
            failure = error
        await pauses.wait(failure, server.patience_s(failure))


async def _events(source: AsyncGenerator[Message, None]) -> AsyncIterator[Event]:
    async with aclosing(source):
        async for message in source:
            yield read(Event, message)
