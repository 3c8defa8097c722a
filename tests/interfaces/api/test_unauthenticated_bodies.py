"""How much of a body is read before it is known who sends it."""

import asyncio

import pytest

from paddock.interfaces.api.middleware import MAX_UNAUTHENTICATED
from tests.control_plane import disposable

LARGE = 8 << 20


@pytest.fixture(scope="module")
async def plane():
    async with disposable() as made:
        yield made


async def sent(plane, path, *headers):
    """Announce a large body, send as much of it as is read, and return the answer and that size."""
    host, _, port = plane.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [f"POST {path} HTTP/1.1", f"host: {host}", "content-type: application/json", *headers]
    writer.write("\r\n".join([*lines, f"content-length: {LARGE}", "", ""]).encode())
    answer = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
    size = 0
    while size <= MAX_UNAUTHENTICATED and not answer.done():
        writer.write(b" " * 4096)
        await writer.drain()
        size += 4096
        await asyncio.sleep(0)
    try:
        async with asyncio.timeout(5):
            return (await answer).decode()
    except TimeoutError:
        return "it waits for the rest"
    finally:
        answer.cancel()
        writer.transport.abort()


@pytest.mark.parametrize(
    "path", ["/v1/sandboxes", "/v1/tasks", "/v1/session", "/sandboxes", "/v3/templates"]
)
@pytest.mark.parametrize("header", ["x-none: 1", "authorization: Bearer tok_wrong.wrong"])
async def test_64_kib_of_a_body_are_read_without_a_token(plane, path, header):
    assert (await sent(plane, path, header)).startswith("HTTP/1.1 401 ")


@pytest.mark.parametrize("path", ["/v1/sandboxes", "/sandboxes"])
async def test_with_a_token_larger_bodies_are_read(plane, path):
    content = {"template": "plain", "templateID": "plain", "labels": {"large": "x" * 200_000}}
    answer = await plane.admin.post(path, content)
    assert answer.status not in (401, 413), answer.body
