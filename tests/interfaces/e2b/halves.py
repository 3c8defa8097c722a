"""The Python SDK's synchronous and asynchronous half by the same tests."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.interfaces.client.unreliable import Way, unreliable
from tests.interfaces.e2b.conftest import Live


@dataclass
class Half:
    """The SDK's synchronous or asynchronous half."""

    live: Live
    name: str

    def sandboxes(self, **options: Any) -> Any:
        client = self.live.client(**options)
        return client.Sandbox if self.name == "sync" else client.AsyncSandbox

    async def make(self, *args: Any, **options: Any) -> Any:
        return await done(self.sandboxes().create(*args, **{"timeout": 60, **options}))


async def done(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


@contextmanager
def way_to(live: Live) -> Iterator[Way]:
    """A way to the server that can be cut; in the server's own thread."""
    context = unreliable(live.url)
    way = live.do(context.__aenter__())
    try:
        yield way
    finally:
        live.do(context.__aexit__(None, None, None))
