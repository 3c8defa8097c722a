"""Connections end with whoever used them, and with their event loop."""

import asyncio
import gc
import os
import warnings

from paddock import Server


def sockets() -> set[str]:
    found = (f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd"))
    return {os.readlink(each) for each in found if os.path.islink(each)}


async def test_a_client_that_nobody_has_any_more_is_closed_without_complaint(running):
    before = sockets()
    server = Server(running.url, running.token)
    await server.call("GET", "/v1/sandboxes")
    server.itself = server  # such as an error's traceback does it
    opened = {each for each in sockets() - before if each.startswith("socket:")}
    assert opened
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del server
        gc.collect()
        async with asyncio.timeout(10):
            while sockets() & opened:
                await asyncio.sleep(0.01)
        gc.collect()
    assert [str(each.message) for each in said] == []


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
