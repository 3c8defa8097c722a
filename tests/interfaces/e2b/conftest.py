"""E2B's own SDK against a live control plane with real sandboxes."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from e2b import E2B

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.wiring.providers import layered
from tests.control_plane import Plane, disposable
from tests.engines import DATA, furnish, local_config

T = TypeVar("T")
LOOK_S = 0.1


@dataclass
class Live:
    """A server with real sandboxes, in a thread of its own."""

    plane: Plane
    provider: LocalProvider
    loop: asyncio.AbstractEventLoop
    stop: asyncio.Event

    @property
    def url(self) -> str:
        return self.plane.url

    @property
    def key(self) -> str:
        return self.plane.admin.token

    @property
    def options(self) -> dict[str, Any]:
        return {"api_key": self.key, "api_url": self.url, "sandbox_url": self.url}

    def client(self, **changes: Any) -> E2B:
        return E2B(**{**self.options, **changes})

    def do(self, work: Coroutine[Any, Any, T], seconds: float = 60) -> T:
        """In the server's own thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)


async def _serve(ready: "Future[Live]", egress: EgressConfig | None = None, **more: Any) -> None:
    provider = await LocalProvider.open(local_config(), egress=egress)
    await provider.prepare("base")
    async with disposable(provider=lambda _: layered(provider), **more) as plane:
        plane.rounds.reaper.every_s = LOOK_S
        reaping = asyncio.create_task(plane.rounds.reaper.run())
        live = Live(plane, provider, asyncio.get_running_loop(), asyncio.Event())
        ready.set_result(live)
        await live.stop.wait()
        reaping.cancel()
        with suppress(asyncio.CancelledError):
            await reaping


@contextmanager
def serving(**more: Any) -> Iterator[Live]:
    ready: Future[Live] = Future()

    def work() -> None:
        try:
            asyncio.run(_serve(ready, **more))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=work, name="server")
    thread.start()
    try:
        live = ready.result(110)
        yield live
        live.loop.call_soon_threadsafe(live.stop.set)
    finally:
        if ready.done() and not ready.exception() and thread.is_alive():
            ready.result().loop.call_soon_threadsafe(ready.result().stop.set)
        thread.join(60)


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    with serving() as made:
        yield made


@pytest.fixture(scope="session")
def e2b(live: Live) -> E2B:
    return live.client()


@pytest.fixture(scope="session")
def interpreter(live: Live) -> None:
    """The template of code interpreters, built once per machine."""
    furnish(DATA, "code-interpreter")
    live.do(live.provider.prepare("code-interpreter"), 60)


@pytest.fixture(scope="module")
def box(e2b: E2B) -> Iterator[Any]:
    """A sandbox that the tests of a module share."""
    made = e2b.Sandbox.create(timeout=300)
    yield made
    made.kill()
