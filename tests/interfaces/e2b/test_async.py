"""The SDK's asynchronous half, where it is another code path: streams, watches, terminals."""

import asyncio
import time

import pytest
from e2b import (
    AsyncTemplate,
    CommandExitException,
    FilesystemEventType,
    SandboxNotFoundException,
    TimeoutException,
)
from e2b.sandbox.commands.command_handle import PtySize

pytestmark = [pytest.mark.timeout(60)]


@pytest.fixture
async def box(live):
    made = await live.client().AsyncSandbox.create(timeout=60)
    yield made
    await live.client().AsyncSandbox.kill(made.sandbox_id)


async def test_commands(box):
    heard: list[str] = []
    done = await box.commands.run("echo a; sleep 0.1; echo b", on_stdout=heard.append)
    assert (done.stdout, "".join(heard)) == ("a\nb\n", "a\nb\n")
    results = await asyncio.gather(*(box.commands.run(f"echo {n}") for n in range(8)))
    assert [each.stdout for each in results] == [f"{n}\n" for n in range(8)]
    with pytest.raises(CommandExitException):
        await box.commands.run("exit 1")
    with pytest.raises(TimeoutException):
        await box.commands.run("sleep 30", timeout=1)
    behind = await box.commands.run("cat", background=True, stdin=True)
    await box.commands.send_stdin(behind.pid, "x")
    await box.commands.close_stdin(behind.pid)
    assert (await behind.wait()).stdout == "x"


async def test_files_and_watches(box):
    await box.files.write("d/a.txt", "a")
    assert await box.files.read("d/a.txt") == "a"
    events: asyncio.Queue = asyncio.Queue()
    handle = await box.files.watch_dir("d", on_event=events.put_nowait)
    await box.files.write("d/b.txt", "b")
    async with asyncio.timeout(10):
        kinds = [(await events.get()).type for _ in range(3)]
    assert kinds == [
        FilesystemEventType.CREATE,
        FilesystemEventType.CHMOD,
        FilesystemEventType.WRITE,
    ]
    await handle.stop()


async def test_terminals(box):
    seen = bytearray()
    handle = await box.pty.create(size=PtySize(rows=30, cols=90), on_data=seen.extend)
    await box.pty.send_stdin(handle.pid, b"stty size; exit\n")
    await handle.wait()
    assert b"30 90" in seen


async def test_git_and_metrics(box):
    repo = "/home/user/repo"
    await box.git.init(repo, initial_branch="main")
    await box.git.configure_user("Me", "me@example.org", path=repo, scope="local")
    await box.files.write(f"{repo}/a.txt", "a")
    await box.git.add(repo)
    await box.git.commit(repo, "first")
    assert (await box.git.status(repo)).is_clean
    (now, *_) = await box.get_metrics()
    assert now.mem_total > now.mem_used > 0


async def test_a_template_is_built_from_code(live):
    client, name = live.client(), f"async-{time.time_ns()}"
    logs = []
    template = AsyncTemplate().from_base_image().run_cmd("echo said; echo made > ~/made.txt")
    await client.AsyncTemplate.build(template, name, on_build_logs=logs.append)
    assert "said" in [entry.message for entry in logs]
    made = await client.AsyncSandbox.create(name, timeout=60)
    try:
        assert await made.files.read("made.txt") == "made\n"
    finally:
        await made.kill()


async def test_lifecycle(live, box):
    sandboxes = live.client().AsyncSandbox
    assert await box.pause() is True
    again = await sandboxes.connect(box.sandbox_id, timeout=60)
    assert (await again.commands.run("echo awake")).stdout == "awake\n"
    behind = await again.commands.run("sleep 60", background=True, timeout=0)
    assert await again.kill() is True
    with pytest.raises(TimeoutException, match="killed or reached its end of life"):
        await behind.wait()
    with pytest.raises(SandboxNotFoundException):
        await sandboxes.get_info(box.sandbox_id)
