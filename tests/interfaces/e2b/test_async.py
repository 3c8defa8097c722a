"""The SDK's asynchronous half inside a sandbox: commands, terminals, files and git."""

import asyncio
import time
from urllib.parse import urlsplit

import httpx
import pytest
from e2b import (
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    FileType,
    NotFoundException,
    TimeoutException,
)
from e2b.sandbox.commands.command_handle import PtySize
from e2b.sandbox.filesystem.filesystem import WriteEntry

pytestmark = [pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
async def box(live):
    """A sandbox that the tests share."""
    made = await live.client().AsyncSandbox.create(timeout=600)
    yield made
    await live.client().AsyncSandbox.kill(made.sandbox_id)


@pytest.fixture
async def own_box(live):
    made = await live.client().AsyncSandbox.create(timeout=60)
    yield made
    await live.client().AsyncSandbox.kill(made.sandbox_id)


async def until(holds, seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.02)


async def test_commands(box):
    heard: list[str] = []
    done = await box.commands.run("echo a; sleep 0.1; echo b", on_stdout=heard.append)
    assert (done.stdout, "".join(heard)) == ("a\nb\n", "a\nb\n")
    asked = {"user": "root", "cwd": "/etc", "envs": {"A": "1"}}
    done = await box.commands.run("id -un; pwd; echo $A", **asked)
    assert done.stdout == "root\n/etc\n1\n"
    results = await asyncio.gather(*(box.commands.run(f"echo {n}") for n in range(8)))
    assert [each.stdout for each in results] == [f"{n}\n" for n in range(8)]
    with pytest.raises(CommandExitException) as caught:
        await box.commands.run("echo so far; echo why >&2; exit 3")
    failed = caught.value
    assert (failed.exit_code, failed.stdout, failed.stderr) == (3, "so far\n", "why\n")
    with pytest.raises(TimeoutException):
        await box.commands.run("sleep 30", timeout=1)
    assert (await box.commands.run("seq 1 100000")).stdout.endswith("\n100000\n")


async def test_commands_behind_are_fed_found_again_and_killed(box):
    behind = await box.commands.run("cat", background=True, stdin=True, timeout=0)
    await box.commands.send_stdin(behind.pid, "x")
    await until(lambda: behind.stdout == "x")
    assert behind.pid in {each.pid for each in await box.commands.list()}
    again = await box.commands.connect(behind.pid)
    await box.commands.send_stdin(behind.pid, "y")
    await box.commands.close_stdin(behind.pid)
    assert (await again.wait()).stdout.endswith("y")
    assert (await behind.wait()).stdout == "xy"
    asleep = await box.commands.run("sleep 60", background=True, timeout=0)
    await asleep.disconnect()
    assert asleep.pid in {each.pid for each in await box.commands.list()}
    assert await box.commands.kill(asleep.pid) is True
    followed = await box.commands.run("sleep 60", background=True, timeout=0)
    assert await followed.kill() is True
    with pytest.raises(CommandExitException) as caught:
        await followed.wait()
    assert "killed" in (caught.value.error or "")
    with pytest.raises(NotFoundException):
        await box.commands.connect(2_000_000)


async def test_input_is_streamed(box):
    behind = await box.commands.run("cat", background=True, stdin=True, timeout=0)
    async with box.commands.stream_input(behind.pid) as into:
        for piece in ("one ", b"two ", "three"):
            await into.send(piece)
    await box.commands.close_stdin(behind.pid)
    assert (await behind.wait()).stdout == "one two three"


async def test_files_have_all_their_verbs(box):
    await box.files.write("d/a.txt", "grüße")
    assert await box.files.read("d/a.txt") == "grüße"
    assert await box.files.read("d/a.txt", format="bytes") == "grüße".encode()
    entries = [WriteEntry(path="d/b", data="b"), WriteEntry(path="d/e/c", data=b"c")]
    made = await box.files.write_files(entries)
    assert [each.path for each in made] == ["/home/user/d/b", "/home/user/d/e/c"]
    assert [each.name for each in await box.files.list("d")] == ["a.txt", "b", "e"]
    assert len(await box.files.list("d", depth=2)) == 4
    info = await box.files.get_info("d/b")
    assert (info.type, info.size, info.owner) == (FileType.FILE, 1, "user")
    assert await box.files.make_dir("new") is True
    assert await box.files.make_dir("new") is False
    assert (await box.files.rename("d/b", "new/b")).path == "/home/user/new/b"
    assert await box.files.exists("d/b") is False
    await box.files.remove("new")
    with pytest.raises(FileNotFoundException):
        await box.files.read("new/b")
    await box.files.write("packed", "x" * 9999, gzip=True, metadata={"kind": "long"})
    assert await box.files.read("packed", gzip=True) == "x" * 9999
    assert (await box.files.get_info("packed")).metadata == {"kind": "long"}
    await box.files.write("/root/s", "s", user="root")
    assert await box.files.read("/root/s", user="root") == "s"


@pytest.mark.parametrize("mib", [32, pytest.param(128, marks=pytest.mark.soak)])
async def test_a_large_file_passes_as_a_stream(box, mib):
    async def pieces():
        for _ in range(mib):
            yield b"x" * (1 << 20)

    await box.files.write("large", pieces(), request_timeout=50)
    assert (await box.files.get_info("large")).size == mib << 20
    seen = 0
    async for piece in await box.files.read("large", format="stream", request_timeout=50):
        seen += len(piece)
    assert seen == mib << 20


async def test_directories_are_watched(box):
    await box.files.make_dir("watched/sub")
    events: asyncio.Queue = asyncio.Queue()
    handle = await box.files.watch_dir("watched", on_event=events.put_nowait, recursive=True)
    await box.files.write("watched/b.txt", "b")
    async with asyncio.timeout(10):
        kinds = [(await events.get()).type for _ in range(3)]
    assert kinds == [
        FilesystemEventType.CREATE,
        FilesystemEventType.CHMOD,
        FilesystemEventType.WRITE,
    ]
    await box.files.write("watched/sub/deep", "x")
    async with asyncio.timeout(10):
        assert (await events.get()).name == "sub/deep"
    await handle.stop()


async def test_a_watch_ends_with_its_sandbox_and_says_why(own_box):
    box = own_box
    ended: asyncio.Queue = asyncio.Queue()
    await box.files.make_dir("d")
    await box.files.watch_dir("d", on_event=lambda _: None, on_exit=ended.put_nowait, timeout=0)
    await box.kill()
    async with asyncio.timeout(20):
        error = await ended.get()
    assert isinstance(error, TimeoutException)
    assert "killed or reached its end of life" in str(error)


async def test_signed_addresses_need_no_key(box):
    await box.files.write("a.txt", "signed")
    async with httpx.AsyncClient(timeout=20) as anyone:
        url = box.download_url("a.txt", use_signature_expiration=60)
        assert "signature=" in urlsplit(url).query
        assert (await anyone.get(url)).text == "signed"
        assert (await anyone.get(url.replace("a.txt", "b.txt"))).status_code == 401
        late = await anyone.get(box.download_url("a.txt", use_signature_expiration=-10))
        assert (late.status_code, late.json()["message"]) == (401, "signature is already expired")
        up = box.upload_url("up.txt", use_signature_expiration=60)
        sent = await anyone.post(up, files={"file": ("up.txt", b"uploaded")})
        assert sent.status_code == 200
    assert await box.files.read("up.txt") == "uploaded"


async def test_terminals(box):
    seen = bytearray()
    handle = await box.pty.create(size=PtySize(rows=30, cols=90), on_data=seen.extend, timeout=0)
    await box.pty.send_stdin(handle.pid, b"stty size\n")
    await until(lambda: b"30 90" in seen)
    await box.pty.resize(handle.pid, PtySize(rows=40, cols=120))
    await handle.disconnect()
    again = bytearray()
    found = await box.pty.connect(handle.pid, on_data=again.extend)
    await box.pty.send_stdin(handle.pid, b"stty size; exit\n")
    await found.wait()
    assert b"40 120" in again
    other = await box.pty.create(size=PtySize(rows=24, cols=80), on_data=seen.extend, timeout=0)
    assert await box.pty.kill(other.pid) is True
    with pytest.raises(CommandExitException):
        await other.wait()


async def test_git(box):
    git, repo, other = box.git, "/home/user/repo", "/home/user/other"
    await box.commands.run("git init -q --bare -b main /home/user/far.git")
    await git.init(repo, initial_branch="main")
    await git.configure_user("Me", "me@example.org", path=repo, scope="local")
    await git.remote_add(repo, "origin", "/home/user/far.git")
    await box.files.write(f"{repo}/a.txt", "one")
    assert not (await git.status(repo)).is_clean
    await git.add(repo)
    await git.commit(repo, "first")
    assert (await git.status(repo)).is_clean
    await git.push(repo, remote="origin", branch="main")
    await git.clone("/home/user/far.git", path=other)
    await git.configure_user("You", "you@example.org", path=other, scope="local")
    await box.files.write(f"{other}/a.txt", "two")
    await git.add(other)
    await git.commit(other, "second")
    await git.push(other)
    await git.pull(repo)
    assert await box.files.read(f"{repo}/a.txt") == "two"
    await git.create_branch(repo, "side")
    assert set((await git.branches(repo)).branches) == {"main", "side"}
    await git.checkout_branch(repo, "main")
    await git.delete_branch(repo, "side")
    await git.reset(repo, mode="hard", target="HEAD~1")
    assert await box.files.read(f"{repo}/a.txt") == "one"


async def test_a_deadline_ends_the_command_inside_as_well(box):
    with pytest.raises(TimeoutException):
        await box.commands.run("sleep 4711", timeout=1)
    began = time.monotonic()
    while any("sleep 4711" in " ".join(each.args) for each in await box.commands.list()):
        assert time.monotonic() - began < 20, "it goes on"
        await asyncio.sleep(0.05)
