"""What is not sent to its end leaves no file, in whatever form it comes."""

import asyncio
import gzip
import os

import pytest

from paddock.domain.errors import NotFound
from paddock.guest_client import Guest
from tests.guest.raw import Raw

pytestmark = pytest.mark.timeout(60)

SIZE = 3 << 20
FORM = "multipart/form-data; boundary=edge"


def form(name: str, content: bytes) -> bytes:
    head = f'--edge\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n"


async def is_there(guest: Guest, path: str) -> bool:
    try:
        await guest.files.stat(path)
    except NotFound:
        return False
    return True


async def cut(raw: Raw, path: str, kind: str, sent: bytes, length: int) -> None:
    """Say that so much comes, send less, and go."""
    _, writer = await raw.connection()
    writer.write(
        f"POST /files?path={path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {length}\r\n\r\n".encode()
    )
    writer.write(sent)
    await writer.drain()
    await asyncio.sleep(0.2)
    writer.close()


@pytest.mark.proves("S12")
@pytest.mark.parametrize("size", [1000, SIZE])
@pytest.mark.parametrize("kind", [FORM, "application/octet-stream"], ids=["form", "plain"])
async def test_a_connection_that_breaks(raw: Raw, guest: Guest, kind: str, size: int) -> None:
    content = os.urandom(size)
    sent = form("cut", content) if kind is FORM else content
    await cut(raw, "" if kind is FORM else f"half/{size}", kind, sent, len(sent) + 5000)
    path = "cut" if kind is FORM else f"half/{size}"
    async with asyncio.timeout(10):
        while await is_there(guest, path):
            await asyncio.sleep(0.05)


@pytest.mark.proves("S12")
@pytest.mark.parametrize("size", [1000, SIZE])
async def test_a_form_without_its_end(raw: Raw, guest: Guest, size: int) -> None:
    body = form("endless", os.urandom(size))[:-2]
    answer = await raw("POST", "/files", headers={"content-type": FORM}, body=body)
    assert answer.status == 400
    assert not await is_there(guest, "endless")


@pytest.mark.proves("S12")
async def test_of_a_form_the_files_that_came_whole_stay(raw: Raw, guest: Guest) -> None:
    body = form("first", b"whole") + form("second", os.urandom(SIZE))[:-2]
    answer = await raw("POST", "/files", headers={"content-type": FORM}, body=body)
    assert answer.status == 400
    assert await guest.files.read("first") == b"whole"
    assert not await is_there(guest, "second")


@pytest.mark.proves("S12")
@pytest.mark.parametrize("size", [1000, SIZE])
async def test_a_compressed_body_without_its_end(raw: Raw, guest: Guest, size: int) -> None:
    body = gzip.compress(os.urandom(size))[:-10]
    headers = {"content-type": "application/octet-stream", "content-encoding": "gzip"}
    answer = await raw("POST", "/files?path=squeezed", headers=headers, body=body)
    assert answer.status == 400
    assert not await is_there(guest, "squeezed")


@pytest.mark.proves("S12")
async def test_nobody_sees_a_file_before_it_is_whole(guest: Guest) -> None:
    seen, content = [], os.urandom(1 << 20)

    async def pieces():
        for _ in range(4):
            yield content
            await asyncio.sleep(0.1)
            seen.append([entry.name for entry in await guest.files.list("growing")])

    await guest.files.make_dir("growing")
    await guest.files.write_stream("growing/new", pieces())
    assert seen == [[]] * 4
    assert await guest.files.read("growing/new") == content * 4
    entry = await guest.files.stat("growing/new")
    assert (entry.mode, entry.owner) == (0o644, "user")


@pytest.mark.proves("S12")
async def test_of_two_that_are_sent_at_once_one_is_there_and_whole(guest: Guest) -> None:
    async def pieces(piece: bytes):
        for _ in range(4):
            yield piece
            await asyncio.sleep(0.05)

    both = [bytes([number]) * (1 << 20) for number in (1, 2)]
    await asyncio.gather(*(guest.files.write_stream("race", pieces(piece)) for piece in both))
    assert await guest.files.read("race") in [piece * 4 for piece in both]
