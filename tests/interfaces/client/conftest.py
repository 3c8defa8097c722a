"""A control plane on the simulated provider, in a thread of its own."""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from paddock.interfaces.client import Server
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import Plane, disposable
from tests.tasks.conftest import at_work


@dataclass
class Running:
    """A server that answers while the test does as it likes."""

    plane: Plane
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return self.plane.url

    @property
    def token(self) -> str:
        return self.plane.admin.token

    def server(self, **more) -> Server:
        return Server(self.url, self.token, **more)

    def do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)


@contextmanager
def serving(*, works: bool = False, **more) -> Iterator[Running]:
    """In a thread, so that blocking clients can be tried, and quickly started and ended. It works
    at tasks if it is told to."""
    ready: Future[Running] = Future()
    stop: Future[asyncio.Event] = Future()

    async def main() -> None:
        ended = asyncio.Event()
        async with (
            disposable(provider=SimulatedProvider, **more) as plane,
            at_work(plane) if works else nullcontext(),
        ):
            stop.set_result(ended)
            ready.set_result(Running(plane, asyncio.get_running_loop()))
            await ended.wait()

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            else:
                raise

    thread = threading.Thread(target=work, name="server")
    thread.start()
    try:
        running = ready.result(60)
        yield running
        running.loop.call_soon_threadsafe(stop.result().set)
    finally:
        if ready.done() and not ready.exception() and thread.is_alive():
            ready.result().loop.call_soon_threadsafe(stop.result().set)
        thread.join(60)


async def run_program(module: str, *words: str) -> Any:
    """Run a module as a program; what it prints is JSON."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *words, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(said)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving() as made:
        yield made


@pytest.fixture
def server(running: Running) -> Server:
    return running.server()
