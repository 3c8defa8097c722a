"""One question to the server, for the commands that are little more than that."""

from typing import Any

from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.remote.session import connected, gathered


def ask(method: str, path: str, **more: Any) -> Any:
    async def work() -> Any:
        async with connected() as server:
            return await server.call(method, path, **more)

    return run_async(work())


def listed(path: str, **query: Any) -> list[Any]:
    """All pages."""

    async def work() -> list[Any]:
        async with connected() as server:
            return await gathered(server.pages(path, query))

    return run_async(work())
