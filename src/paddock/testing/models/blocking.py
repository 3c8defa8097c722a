"""The scripted model for tests without an event loop: the same one, in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from paddock.testing.models.record import Request
from paddock.testing.models.script import Script
from paddock.testing.models.server import ScriptedModel

T = TypeVar("T")


class BlockingModel:
    """What a test may ask of a model that runs in another thread."""

    def __init__(self, model: ScriptedModel, loop: asyncio.AbstractEventLoop) -> None:
        self._model, self._loop = model, loop
        self.url = model.url

    @property
    def requests(self) -> tuple[Request, ...]:
        return self._on_loop(lambda: self._model.requests)

    @property
    def turns(self) -> tuple[Request, ...]:
        return self._on_loop(lambda: self._model.turns)

    @property
    def problems(self) -> tuple[str, ...]:
        return self._on_loop(lambda: self._model.problems)

    def open(self, gate: str) -> None:
        self._on_loop(lambda: self._model.open(gate))

    def wait_for(self, wanted: Callable[[Request], bool], timeout_s: float = 30) -> Request:
        waiting = self._model.wait_for(wanted, timeout_s)
        return asyncio.run_coroutine_threadsafe(waiting, self._loop).result()

    def _on_loop(self, act: Callable[[], T]) -> T:
        if self._loop.is_closed():
            return act()  # what was recorded can still be looked at, and nobody changes it any more

        async def there() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result()


@contextmanager
def scripted_model(*scripts: Script, host: str = "127.0.0.1") -> Iterator[BlockingModel]:
    """`with scripted_model(script) as model:` serves it at `model.url` until the block ends."""
    ready: Future[BlockingModel] = Future()
    done = asyncio.Event()

    async def serve() -> None:
        async with ScriptedModel(*scripts, host=host) as model:
            ready.set_result(BlockingModel(model, asyncio.get_running_loop()))
            await done.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=run, name="scripted model", daemon=True)
    thread.start()
    try:
        model = ready.result(timeout=30)
        try:
            yield model
        finally:
            model._loop.call_soon_threadsafe(done.set)
    finally:
        thread.join(timeout=30)
