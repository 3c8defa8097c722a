"""Files over connections that break in the middle: whole, or an error, never a mixture."""

import os
import random

import pytest

from paddock import AsyncSandbox, Conflict, Server, Unavailable
from tests.interfaces.client.unreliable import seeds, unreliable

MIB = 1 << 20
CONTENT = os.urandom(6 * MIB)


@pytest.fixture
async def way(running):
    async with unreliable(running.url) as made:
        yield made


@pytest.fixture
async def box(running):
    async with await AsyncSandbox.create("plain", server=running.server()) as made:
        yield made


@pytest.fixture
async def home(box):
    return (await box.commands.run("pwd", check=True)).stdout.strip()


@pytest.fixture
async def files(running, way, box):
    """The sandbox's files by the way that breaks; connections open anew."""
    async with Server(f"http://127.0.0.1:{way.port}", running.token, patience_s=20) as server:
        found = await AsyncSandbox.connect(box.id, server=server)
        await server.aclose()
        yield found.files


@pytest.mark.parametrize("seed", seeds(2, 4))
async def test_a_download_goes_on_where_it_broke(files, way, box, home, tmp_path, seed):
    await box.files.write(f"{home}/big", CONTENT)
    chance = random.Random(seed)
    way.cut_after += [100_000, *(chance.randrange(1, 2 * MIB) for _ in range(6))]
    told = []
    await files.download(f"{home}/big", tmp_path / "copy", progress=lambda n, _: told.append(n))
    assert (tmp_path / "copy").read_bytes() == CONTENT
    assert way.cuts >= 3
    assert told == sorted(told)
    assert told[-1] == len(CONTENT)
    assert [each.name for each in tmp_path.iterdir()] == ["copy"]


async def test_of_a_file_that_changed_meanwhile_no_mixture_is_made(files, way, box, home, tmp_path):
    await box.files.write(f"{home}/moving", b"a" * 3 * MIB)
    way.cut_after += [MIB + 500_000]
    taken = b""
    with pytest.raises(Conflict, match="was changed while it was read"):
        async for piece in files.read_stream(f"{home}/moving"):
            taken += piece
            if len(taken) >= MIB:
                await box.files.write(f"{home}/moving", b"b" * 3 * MIB)
    assert set(taken) == {ord("a")}
    assert way.cuts == 1


@pytest.mark.parametrize("cut", [1, 5000, 3 * MIB])
async def test_an_upload_that_broke_is_sent_again_as_a_whole(files, way, box, home, tmp_path, cut):
    (tmp_path / "source").write_bytes(CONTENT)
    way.cut_sent_after += [cut, cut]
    await files.upload(tmp_path / "source", f"{home}/copy-{cut}")
    assert await box.files.read_bytes(f"{home}/copy-{cut}") == CONTENT
    assert way.cuts == 2


async def test_what_can_be_had_only_once_is_not_sent_again(files, way, box, home):
    async def pieces():
        for at in range(0, len(CONTENT), MIB):
            yield CONTENT[at : at + MIB]

    way.cut_sent_after += [2 * MIB]
    with pytest.raises(Unavailable):
        await files.write(f"{home}/once", pieces())
    assert not await box.files.exists(f"{home}/once")


async def test_a_directory_that_broke_off_is_fetched_again(files, way, box, home, tmp_path):
    await box.files.write(f"{home}/tree/one", CONTENT)
    await box.files.write(f"{home}/tree/two", CONTENT[:1000])
    way.cut_after += [100_000, 3 * MIB]
    await files.download(f"{home}/tree", tmp_path / "tree")
    assert (tmp_path / "tree" / "one").read_bytes() == CONTENT
    assert (tmp_path / "tree" / "two").read_bytes() == CONTENT[:1000]


async def test_what_always_breaks_is_said_in_the_end(files, way, box, home, tmp_path):
    await box.files.write(f"{home}/always/one", CONTENT)
    way.cut_after += [100_000, *([MIB] * 50)]
    with pytest.raises(Unavailable):
        await files.download(f"{home}/always", tmp_path / "always")


async def test_a_listing_is_read_page_by_page(box, home):
    await box.commands.run("mkdir many; cd many; seq 1 2500 | xargs touch", check=True)
    seen = 0
    async for _ in box.files.scan(f"{home}/many"):
        seen += 1
        if seen == 1500:
            break
    assert len(await box.files.list(f"{home}/many")) == 2500
    await box.files.write(f"{home}/deep/node_modules/x", "1")
    assert [each.name for each in await box.files.list(f"{home}/deep", depth=5)] == ["node_modules"]
    every = await box.files.list(f"{home}/deep", depth=5, exclude=())
    assert [each.name for each in every] == ["node_modules", "x"]
