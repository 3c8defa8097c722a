"""Files through the SDK: text, bytes, streams, local paths."""

import asyncio
import hashlib
import io
import os
import socket

import pytest

from paddock import AsyncSandbox, InvalidRequest, NotFound
from tests.interfaces.client.conftest import run_program


@pytest.fixture(scope="module")
async def box(running):
    async with await AsyncSandbox.create("plain", server=running.server()) as made:
        yield made


@pytest.fixture(scope="module")
async def home(box):
    """The sandbox's own directory: there is no fence, and a relative path would be the host's."""
    return (await box.commands.run("pwd", check=True)).stdout.strip()


async def test_text_bytes_files_and_streams_are_written_and_read(box, home):
    await box.files.write(f"{home}/a/b/text", "grüße")
    assert await box.files.read(f"{home}/a/b/text") == "grüße"
    every = bytes(range(256))

    async def pieces():
        yield every
        yield every

    for content in (every * 2, io.BytesIO(every * 2), [every, every], pieces()):
        info = await box.files.write(f"{home}/bytes", content)
        assert (info.size, info.kind) == (512, "file")
        assert await box.files.read_bytes(f"{home}/bytes") == every * 2


async def test_list_stat_exists_move_and_remove(box, home):
    await box.files.make_dir(f"{home}/d/e")
    await box.files.make_dir(f"{home}/d/e")
    await box.files.write(f"{home}/d/one", "1")
    assert sorted(each.name for each in await box.files.list(f"{home}/d")) == ["e", "one"]
    assert (await box.files.stat(f"{home}/d")).is_dir
    assert await box.files.exists(f"{home}/d/one")
    await box.files.move(f"{home}/d/one", f"{home}/d/e/two")
    assert not await box.files.exists(f"{home}/d/one")
    assert await box.files.read(f"{home}/d/e/two") == "1"
    await box.files.remove(f"{home}/d")
    await box.files.remove(f"{home}/d")
    with pytest.raises(NotFound):
        await box.files.read(f"{home}/d/e/two")


async def test_a_name_that_is_no_text_survives(box, home):
    name = os.fsdecode(b"odd-\xff-name")
    await box.files.write(f"{home}/odd/{name}", "x")
    assert [each.name for each in await box.files.list(f"{home}/odd")] == [name]
    assert await box.files.read(f"{home}/odd/{name}") == "x"


async def test_changes_are_told(box, home):
    await box.files.make_dir(f"{home}/watched")
    waiting = aiter(box.files.watch(f"{home}/watched"))
    first = asyncio.ensure_future(anext(waiting))
    await asyncio.sleep(0.5)
    await box.files.write(f"{home}/watched/new", "x")
    assert (await asyncio.wait_for(first, 10)).name
    await waiting.aclose()


async def test_a_directory_goes_in_and_comes_out_with_modes_and_links(box, home, tmp_path):
    source = tmp_path / "in"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "sub" / "run.sh").chmod(0o755)
    (source / "link").symlink_to("sub/run.sh")
    sent = await box.files.upload(source, f"{home}/tree")
    assert sent.files == 1
    assert (await box.commands.run(["tree/link"])).stdout == "ran\n"
    await box.commands.run("ln -s /etc/passwd tree/outside", check=True)
    brought = await box.files.download(f"{home}/tree", tmp_path / "out")
    assert (tmp_path / "out" / "link").read_text() == "#!/bin/sh\necho ran\n"
    assert (tmp_path / "out" / "sub" / "run.sh").stat().st_mode & 0o100
    assert [name.rpartition("/")[2] for name in brought.skipped] == ["outside"]
    assert not (tmp_path / "out" / "outside").is_symlink()


async def test_what_is_no_content_is_left_out_and_named(box, home, tmp_path):
    source = tmp_path / "odd"
    (source / "sub").mkdir(parents=True)
    (source / "note").write_text("kept\n")
    os.mkfifo(source / "sub" / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(source / "socket"))
        sent = await box.files.upload(source, f"{home}/odd")
    assert (sent.files, sorted(sent.skipped)) == (1, ["socket", "sub/pipe"])
    assert await box.files.read(f"{home}/odd/note") == "kept\n"
    async with asyncio.timeout(20):  # reading one would never end
        with pytest.raises(InvalidRequest, match="pipe is neither a file nor a directory"):
            await box.files.upload(source / "sub" / "pipe", f"{home}/pipe")


async def test_a_program_stays_one(box, home, tmp_path):
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\necho tool\n")
    program.chmod(0o755)
    await box.files.upload(program, f"{home}/bin/renamed")
    assert (await box.commands.run(["bin/renamed"])).stdout == "tool\n"
    await box.files.download(f"{home}/bin/renamed", tmp_path / "back")
    assert (tmp_path / "back").stat().st_mode & 0o100


@pytest.mark.parametrize(
    ("mib", "most_mib"), [(96, 64), pytest.param(200, 100, marks=pytest.mark.soak)]
)
async def test_large_files_need_little_memory(running, box, home, tmp_path, mib, most_mib):
    big, back = tmp_path / "big", tmp_path / "back"
    with big.open("wb") as file:
        for _ in range(mib):
            file.write(os.urandom(1 << 20))
    done = await run_program(
        "tests.interfaces.client.transfer",
        *(running.url, running.token, box.id, str(big), f"{home}/big", str(back)),
    )
    assert done["grown_kib"] < most_mib << 10
    assert done["told"] == [mib << 20, mib << 20]
    with big.open("rb") as one, back.open("rb") as two:
        assert hashlib.file_digest(one, "sha256").digest() == (
            hashlib.file_digest(two, "sha256").digest()
        )
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
