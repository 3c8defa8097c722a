"""Archives that become files once all of them has come, and never before."""

import asyncio
import io
import os
import tarfile

import pytest

from paddock.domain.errors import Forbidden, InvalidRequest, NotFound, Unavailable
from paddock.guest_client import Guest
from tests.guest.raw import Raw

pytestmark = pytest.mark.timeout(60)


def tar(size: int = 3 << 20) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("one", "sub/two"):
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(os.urandom(size)))
    return buffer.getvalue()


async def names(guest: Guest, path: str) -> list[str]:
    return [entry.name for entry in await guest.files.list(path, depth=5)]


@pytest.mark.proves("S12")
async def test_what_came_whole_is_unpacked_with_the_users_rights(guest: Guest) -> None:
    await guest.files.make_dir("whole")

    async def pieces():
        data = tar()
        for at in range(0, len(data), 100_000):
            yield data[at : at + 100_000]

    ran = await guest.files.unpack("whole", pieces())
    assert (ran.exit_code, ran.stderr) == (0, b"")
    assert await names(guest, "whole") == ["one", "sub", "two"]
    assert (await guest.files.stat("whole/one")).owner == "user"


@pytest.mark.proves("S12")
@pytest.mark.parametrize("part", [0, 100, 2 << 20])
async def test_what_breaks_off_leaves_nothing_not_even_for_a_moment(
    guest: Guest, part: int
) -> None:
    await guest.files.make_dir(f"broken-{part}")
    data, seen = tar(), []

    async def pieces():
        yield data[:part]
        await asyncio.sleep(0.3)
        seen.append(await names(guest, f"broken-{part}"))
        raise OSError("cut")

    with pytest.raises((OSError, Unavailable)):
        await guest.files.unpack(f"broken-{part}", pieces())
    await asyncio.sleep(0.3)
    assert seen == [[]]
    assert await names(guest, f"broken-{part}") == []


async def test_what_is_no_tar_says_so(guest: Guest) -> None:
    await guest.files.make_dir("not-a-tar")

    async def pieces():
        yield b"hello" * 5000

    ran = await guest.files.unpack("not-a-tar", pieces())
    assert ran.exit_code != 0
    assert ran.stderr
    assert await names(guest, "not-a-tar") == []


async def test_it_is_for_directories_that_may_be_written(guest: Guest, raw: Raw) -> None:
    async def pieces():
        yield tar(10)

    with pytest.raises(NotFound):
        await guest.files.unpack("no/such", pieces())
    with pytest.raises(Forbidden):
        await guest.files.unpack("/etc", pieces())
    await guest.files.write("plain", b"x")
    with pytest.raises(InvalidRequest):
        await guest.files.unpack("plain", pieces())
    answer = await raw("POST", "/paddock.Guest/Unpack", body=b"x")
    assert answer.status == 400
