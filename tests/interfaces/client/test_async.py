"""AsyncSandbox against a live server."""

import asyncio
import math
import time

import pytest

from paddock import AsyncSandbox, CommandFailed, CommandResult, Conflict, NotFound, PaddockError


@pytest.fixture
async def box(server):
    async with await AsyncSandbox.create("plain", server=server) as made:
        yield made


async def test_a_sandbox_is_made_found_and_deleted_at_the_end(server):
    async with await AsyncSandbox.create(
        "plain", name="sdk-one", labels={"of": "sdk"}, env={"A": "1"}, server=server
    ) as box:
        assert (await box.info()).state == "running"
        assert box.name == "sdk-one"
        found = [each.id async for each in AsyncSandbox.list(labels={"of": "sdk"}, server=server)]
        assert found == [box.id]
        same = await AsyncSandbox.connect("sdk-one", server=server)
        assert (await same.commands.run("echo $A")).stdout == "1\n"
        async with same:
            pass
        assert await box.is_running(), "what was only connected to is not deleted"
    assert (await box.info()).state == "deleted"
    await box.kill()


async def test_a_string_is_for_the_shell_and_a_list_is_not(box):
    assert (await box.commands.run("echo a; echo b >&2")).stderr == "b\n"
    assert (await box.commands.run(["echo", "a; b", "$HOME"])).stdout == "a; b $HOME\n"


async def test_a_failure_is_a_result_unless_asked_to_be_an_error(box):
    result = await box.commands.run("echo no >&2; exit 3")
    assert (result.exit_code, result.ok, result.stderr) == (3, False, "no\n")
    with pytest.raises(CommandFailed, match="exit 3 ended with exit code 3: no"):
        await box.commands.run("echo no >&2; exit 3", check=True)
    assert not isinstance(CommandFailed("", 1, "", ""), PaddockError)


async def test_output_is_told_as_it_comes_and_bytes_survive(box):
    heard = []
    result = await box.commands.run(
        "echo one; sleep 0.2; echo two >&2",
        on_stdout=lambda text: heard.append(("out", text)),
        on_stderr=lambda text: heard.append(("err", text)),
    )
    assert heard == [("out", "one\n"), ("err", "two\n")]
    assert isinstance(result, CommandResult)
    every = bytes(range(256))
    assert (await box.commands.run(["cat"], stdin=every)).stdout_bytes == every


async def test_a_command_that_need_not_last_is_one_request(box):
    result = await box.commands.run("printf '\\377'; echo no >&2; exit 3", durable=False)
    assert (result.exit_code, result.stdout_bytes, result.stderr) == (3, b"\xff", "no\n")
    late = await box.commands.run("sleep 100", durable=False, timeout=0.3)
    assert (late.exit_code, late.reason) == (124, "deadline")


async def test_a_deadline_is_124_with_what_was_said(box):
    result = await box.commands.run("echo before; sleep 100", timeout=3)
    assert (result.exit_code, result.reason, result.stdout) == (124, "deadline", "before\n")


async def test_nothing_is_left_of_a_command_that_was_waited_for(box):
    await box.commands.run("true")
    assert await box.commands.list() == []


async def test_a_wait_that_is_cancelled_ends_the_command(box):
    seconds = 10**9 + time.time_ns() % 10**9  # the processes of this provider are the machine's
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await box.commands.run(f"sleep {seconds} & sleep {seconds}")
    assert await box.commands.list() == []
    assert f"sleep {seconds}" not in (await box.commands.run(["ps", "-ef"])).stdout


async def test_a_background_command_is_fed_followed_connected_to_and_ended(box):
    command = await box.commands.start(["cat"], keep_stdin_open=True)
    await command.send_input("ä" * 10)
    pieces = []
    async for piece in command:
        pieces.append(piece.data)
        if b"".join(pieces).decode() == "ä" * 10:
            break
    again = await box.commands.connect(command.id, cursor=command.cursor)
    await again.send_input(b"more")
    await again.close_input()
    assert (await again.wait()).stdout == "more"
    assert (await (await box.commands.connect(command.id)).wait()).stdout == "ä" * 10 + "more"
    assert (await command.info()).exit_code == 0
    await command.forget()
    with pytest.raises(NotFound):
        await box.commands.connect(command.id)
    other = await box.commands.run("sleep 100", background=True)
    await other.kill(0)
    assert (await other.wait()).exit_code != 0


async def test_a_terminal_has_a_size_and_echoes(box):
    terminal = await box.pty.create((100, 30), cmd=["sh"])
    await terminal.resize(90, 20)
    await terminal.send_input("stty size; exit 5\n")
    result = await terminal.wait()
    assert result.exit_code == 5
    assert "20 90" in result.stdout


@pytest.mark.proves("K10")
async def test_environment_and_lifetime_are_set_while_it_runs(box):
    await box.set_env({"LATER": "yes"})
    assert (await box.commands.run("echo $LATER")).stdout == "yes\n"
    await box.set_timeout(500)
    await box.keep_alive(100)
    info = await box.info()
    assert info.expires_at is not None
    assert info.keep_alive_until is not None
    assert "LATER" in info.env_names


async def test_for_ever_is_infinity(server):
    async with await AsyncSandbox.create(
        "plain", timeout=60, idle_timeout=math.inf, memory_mib=256, server=server
    ) as box:
        info = await box.info()
        assert info.lifetime.idle_timeout_s is None
        assert info.lifetime.timeout_s == 60
        assert info.resources.memory_mib == 256


async def test_a_fork_has_the_files_and_goes_its_own_way(server, box):
    await box.commands.run("echo one > note", check=True)
    async with await box.fork("sdk-fork") as copy:
        assert (await copy.commands.run("cat note; echo two > note")).stdout == "one\n"
        assert (await box.commands.run("cat note")).stdout == "one\n"


async def test_a_snapshot_is_what_another_starts_from(server, box):
    await box.commands.run("echo yes > kept", check=True)
    taken = await box.snapshot("sdk-snap", everything=True)
    assert [each.id async for each in box.snapshots()] == [taken.id]
    assert (taken.ignore.rules, taken.ignore.left_out) == ((), ())
    async with await AsyncSandbox.create(snapshot=taken.id, server=server) as other:
        assert (await other.commands.run("cat kept")).stdout == "yes\n"
    await server.call("DELETE", f"/v1/snapshots/{taken.id}")


@pytest.mark.proves("N3")
async def test_a_snapshot_is_returned_to(server, box):
    await box.commands.run("echo old > note", check=True)
    taken = await box.snapshot("sdk-back")
    await box.commands.run("echo new > note", check=True)
    before = box.id
    await box.restore("sdk-back")
    assert (await box.commands.run("cat note")).stdout == "old\n"
    assert (box.id, await box.is_running()) == (before, True)
    async for each in box.snapshots():
        await server.call("DELETE", f"/v1/snapshots/{each.id}")
    with pytest.raises(NotFound):
        await box.restore(taken.id)


async def test_an_archived_one_is_read_only_when_it_may_be_woken(box):
    home = (await box.commands.run("echo 1 > one; pwd", check=True)).stdout.strip()
    await box.stop()
    await box.archive()
    await box.archive()
    for read in (
        box.files.read(f"{home}/one"),
        box.files.list(home),
        box.files.exists(f"{home}/one"),
        box.files.write(f"{home}/two", "2"),
    ):
        with pytest.raises(Conflict, match="archived"):
            await read
    assert (await box.info()).state == "archived"
    assert await box.files.read(f"{home}/one", wake=True) == "1\n"
    assert await box.is_running()
    await box.pause()
    await box.files.write(f"{home}/two", "2", wake=True)
    assert {each.name for each in await box.files.list(home)} >= {"one", "two"}


async def test_stop_start_and_what_that_state_refuses(box):
    await box.stop()
    await box.stop()
    with pytest.raises(Conflict) as caught:
        await box.resume()
    assert caught.value.remediation
    assert caught.value.request_id.startswith("req_")
    await box.start()
    await box.pause()
    assert (await box.info()).state == "paused"
    await box.resume()
    assert await box.is_running()


@pytest.mark.usefixtures("as_root")
async def test_ports_have_addresses_and_links(box):
    url = await box.get_url(8000)
    assert f"8000-{box.id.replace('_', '-')}" in url
    link = await box.share(8000, 60)
    assert link.url.startswith(url)
    assert await box.ports() == []


async def test_events_tell_its_life(box):
    kinds = [event.kind async for event in box.events()]
    assert kinds[:2] == ["sandbox.creating", "sandbox.running"]
    waiting = aiter(box.events(follow=True))
    seen = [await anext(waiting) for _ in kinds]
    assert [event.kind for event in seen] == kinds
    await box.set_env({"X": "1"})
    assert (await asyncio.wait_for(anext(waiting), 10)).subject == box.id
    await waiting.aclose()


async def test_use_is_told(box):
    assert (await box.metrics()).pids > 0
