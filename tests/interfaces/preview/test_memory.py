"""Bodies of any size go through in the same memory, in both directions."""

import asyncio
import subprocess
import sys

import pytest

from tests.interfaces.preview.conftest import MOSTLY_UVLOOP
from tests.interfaces.preview.running import HOST, get, scripted

MIB = 2**20

PROGRAM = """
import asyncio, sys
from paddock.interfaces.preview import Front, FrontConfig, Upstream
from tests.interfaces.preview.running import dial_tcp

async def main():
    upstream = Upstream("x", dial_tcp(int(sys.argv[1])))
    async with Front(lambda _: upstream) as front:
        print((await front.listen("127.0.0.1", 0))[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)

if sys.argv[2] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


class FrontProcess:
    """A front in a process of its own, whose memory can be looked at."""

    def __init__(self, upstream: int, kind: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(upstream), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self):
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def peak_mib(self) -> float:
        with open(f"/proc/{self._process.pid}/status") as status:
            line = next(line for line in status if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def forget_peak(self) -> None:
        with open(f"/proc/{self._process.pid}/clear_refs", "w") as file:
            file.write("5")


async def big(reader, writer):
    """Counts a body that comes, and then sends as much back."""
    head = await reader.readuntil(b"\r\n\r\n")
    wanted = int(head.split()[1].removeprefix(b"/"))
    if b"chunked" in head:
        received = 0
        while not (line := await reader.readline()).startswith(b"0\r\n"):
            received += len(await reader.readexactly(int(line, 16)))
            await reader.readline()
    else:
        received = 0
        while received < wanted:
            received += len(await reader.read(MIB))
    assert received == wanted
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % wanted)
    for _ in range(wanted // MIB):
        writer.write(b"d" * MIB)
        await writer.drain()


async def upload_and_download(port: int, size: int, *, chunked: bool) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    writer.write(get(f"/{size}", framing, host=HOST).replace(b"GET", b"POST"))
    piece = b"u" * MIB
    if chunked:
        piece = b"%x\r\n%b\r\n" % (MIB, piece)
    for _ in range(size // MIB):
        writer.write(piece)
        await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    received = 0
    while received < size:
        data = await reader.read(MIB)
        assert data
        received += len(data)
        if received < 20 * MIB:
            await asyncio.sleep(0.01)  # slower than the upstream, for a while
    writer.close()
    await writer.wait_closed()
    return received


@pytest.mark.parametrize("kind", MOSTLY_UVLOOP)
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_large_body_does_not_stay_in_memory(kind, chunked):
    await _check(kind, 96 * MIB, chunked=chunked)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_gigabyte_does_not_stay_in_memory():
    await _check("uvloop", 1024 * MIB, chunked=False)


async def _check(kind: str, size: int, *, chunked: bool) -> None:
    async with scripted(big) as upstream:
        with FrontProcess(upstream.port, kind) as front:
            await upload_and_download(front.port, MIB, chunked=chunked)
            front.forget_peak()
            before = front.peak_mib()
            assert await upload_and_download(front.port, size, chunked=chunked) == size
            assert front.peak_mib() - before < 16
