"""Issue: log flooding. Clients that hang up in the middle of a request leave no line in the log."""

import asyncio
import logging

import pytest

from paddock.interfaces.e2b.app import ROUTERS
from tests.control_plane import disposable

_WRITES = ("POST", "PUT", "PATCH")


@pytest.fixture(scope="module")
async def plane():
    async with disposable() as made:
        yield made


async def hang_up(plane, method, path, kind, headers=()):
    """Send a head, half a body, and go."""
    host, _, port = plane.url.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}", f"content-type: {kind}", *headers]
    head = "\r\n".join([*lines, "content-length: 1000", "", ""])
    writer.write(head.encode() + b'{"name":')
    await writer.drain()
    writer.transport.abort()


async def answered(plane):
    """How many requests have come to their end."""
    series = (await plane.services.metrics.text()).decode().splitlines()
    counts = [each for each in series if each.startswith("paddock_http_requests_total{")]
    return sum(float(each.rpartition(" ")[2]) for each in counts)


def routes(document):
    for path, operations in document["paths"].items():
        for method in operations:
            yield method.upper(), path
    for module in ROUTERS:
        for route in module.router.routes:
            yield from ((method, route.path) for method in route.methods)


@pytest.mark.parametrize("who", ["nobody", "member"])
async def test_hanging_up_in_mid_body_is_not_logged(plane, caplog, who):
    document = (await plane.admin.get("/v1/openapi.json")).body
    wanted = [each for each in routes(document) if each[0] in _WRITES]
    assert len(wanted) > 80
    member = await plane.member(role="member")
    headers = [f"authorization: Bearer {member.token}"] if who == "member" else []
    before = await answered(plane)
    with caplog.at_level(logging.INFO):
        for method, path in wanted:
            place = path.replace("{", "").replace("}", "").replace(":path", "")
            for kind in ("application/json", "application/octet-stream"):
                await hang_up(plane, method, place, kind, headers)
        async with asyncio.timeout(10):
            while await answered(plane) < before + 2 * len(wanted):
                await asyncio.sleep(0.02)
    # uvicorn asks the root logger, which only tests set to this level.
    ours = [each for each in caplog.records if each.name != "uvicorn.access"]
    # Another test may have set one of our loggers to `debug`.
    logged = [each for each in ours if each.levelno >= logging.INFO]
    said = [f"{each.name}: {each.getMessage()}" for each in logged]
    assert not said, said[:10]
