"""Connections end with whoever used them, and with their event loop."""

import asyncio

from paddock import Server
from tests.interfaces.client.conftest import run_program


async def test_a_client_that_nobody_has_any_more_is_closed_without_complaint(running):
    said = await run_program("tests.interfaces.client.abandoned", running.url, running.token)
    assert said == []


def test_a_client_of_another_loop_opens_connections_of_its_own(running):
    """As in programs that call `asyncio.run` again and again."""
    server = Server(running.url, running.token)

    async def ask() -> None:
        assert (await server.call("GET", "/v1/sandboxes"))["items"] == []

    asyncio.run(ask())
    asyncio.run(ask())

    async def close() -> None:
        await server.aclose()
        await ask()
        await server.aclose()

    asyncio.run(close())
