"""Supervised processes."""

import asyncio
from contextlib import aclosing

import pytest

from paddock.domain.errors import InvalidRequest, NotFound
from paddock.guest.supervised import Backoff
from paddock.guest_client import Guest
from paddock.guest_client.processes import Process, ProcessState, Restart
from paddock.guest_client.runs import Chunk, Gap
from tests.guest.conftest import StartGuest, StartPacked

pytestmark = pytest.mark.timeout(60)


async def _until(guest: Guest, name: str, state: ProcessState, within: float = 10) -> Process:
    async with asyncio.timeout(within):
        while (process := await guest.processes.get(name)).state is not state:
            await asyncio.sleep(0.02)
    return process


async def _log(guest: Guest, name: str, **options: object) -> bytes:
    logs = guest.processes.logs(name, **options)  # type: ignore[arg-type]
    return b"".join([event.data async for event in logs if isinstance(event, Chunk)])


async def _logged(guest: Guest, name: str, text: bytes, count: int = 1) -> None:
    """Wait until a process has written a text so often."""
    async with asyncio.timeout(10):
        while (await _log(guest, name)).count(text) < count:
            await asyncio.sleep(0.02)


async def test_a_process_is_defined_started_stopped_and_removed(guest: Guest) -> None:
    process = await guest.processes.put(
        "web", ["sh", "-c", "echo up; exec sleep 300"], env={"A": "1"}
    )
    assert (process.state, process.wanted, process.pid) == (ProcessState.STOPPED, False, None)
    process = await guest.processes.start("web")
    assert (process.state, process.wanted) == (ProcessState.RUNNING, True)
    assert process.pid == (await guest.processes.start("web")).pid
    await _logged(guest, "web", b"up")
    assert (await guest.exec(["kill", "-0", str(process.pid)])).exit_code == 0
    stopped = await guest.processes.stop("web")
    assert (stopped.state, stopped.wanted, stopped.last_exit_code) == (
        ProcessState.STOPPED,
        False,
        143,
    )
    assert (await guest.exec(["kill", "-0", str(process.pid)])).exit_code == 1
    assert [p.name for p in await guest.processes.list()] == ["web"]
    assert await _log(guest, "web") == b"up\n"
    await guest.processes.remove("web")
    await guest.processes.remove("web")
    with pytest.raises(NotFound):
        await guest.processes.get("web")


@pytest.mark.proves("A5")
async def test_a_process_that_dies_is_started_again_after_a_second(guest: Guest) -> None:
    await guest.processes.put("dies", ["sh", "-c", "echo $$; sleep 0.2; exit 1"])
    await guest.processes.start("dies")
    process = await _until(guest, "dies", ProcessState.BACKOFF)
    assert (process.failures, process.last_exit_code) == (1, 1)
    await _until(guest, "dies", ProcessState.RUNNING)
    process = await guest.processes.get("dies")
    assert process.restarts == 1
    assert len(set((await _log(guest, "dies")).split())) == 2
    await guest.processes.remove("dies")


@pytest.mark.proves("A5")
def test_delays_double_and_five_fast_failures_are_the_last() -> None:
    backoff = Backoff()
    assert [backoff.after(0.1) for _ in range(5)] == [1, 2, 4, 8, None]
    assert backoff.failures == 5
    backoff.reset()
    assert backoff.after(0.1) == 1


def test_slow_failures_are_not_counted_and_a_healthy_time_resets_them() -> None:
    backoff = Backoff()
    assert [backoff.after(20) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert backoff.failures == 0
    assert backoff.after(0.1) == 30
    assert (backoff.after(60), backoff.failures) == (1, 0)


@pytest.mark.slow
@pytest.mark.proves("A5")
@pytest.mark.timeout(90)
async def test_it_gives_up_after_five_fast_failures_and_can_be_started_again(guest: Guest) -> None:
    await guest.processes.put("hopeless", ["sh", "-c", "test -e fixed && exec sleep 300; exit 1"])
    await guest.processes.start("hopeless")
    process = await _until(guest, "hopeless", ProcessState.GAVE_UP, within=40)
    assert (process.failures, process.restarts) == (5, 4)
    await guest.exec(["touch", "fixed"])
    process = await guest.processes.start("hopeless")
    assert (process.state, process.failures) == (ProcessState.RUNNING, 0)
    await guest.processes.remove("hopeless")


async def test_a_command_that_does_not_exist_is_a_failure_like_any_other(guest: Guest) -> None:
    await guest.processes.put("missing", ["no-such-command"])
    process = await guest.processes.start("missing")
    assert (process.state, process.failures) == (ProcessState.BACKOFF, 1)
    assert b"command not found" in await _log(guest, "missing")
    await guest.processes.remove("missing")


@pytest.mark.proves("A5")
async def test_an_intentional_restart_is_not_counted(guest: Guest) -> None:
    await guest.processes.put("calm", ["sh", "-c", "echo again; exec sleep 300"])
    first = await guest.processes.start("calm")
    for number in range(1, 7):
        await _logged(guest, "calm", b"again", number)
        process = await guest.processes.restart("calm")
    assert process.pid != first.pid
    assert (process.state, process.restarts, process.failures) == (ProcessState.RUNNING, 0, 0)
    await _logged(guest, "calm", b"again", 7)
    assert (await _log(guest, "calm")).count(b"again") == 7
    await guest.processes.remove("calm")


async def test_the_restart_policy_decides(guest: Guest) -> None:
    for name, restart, code, state in (
        ("p1", Restart.NEVER, 1, ProcessState.EXITED),
        ("p2", Restart.ON_FAILURE, 0, ProcessState.EXITED),
        ("p3", Restart.ON_FAILURE, 2, ProcessState.BACKOFF),
        ("p4", Restart.ALWAYS, 0, ProcessState.BACKOFF),
    ):
        await guest.processes.put(name, ["sh", "-c", f"exit {code}"], restart=restart)
        await guest.processes.start(name)
        assert (await _until(guest, name, state)).last_exit_code == code
        await guest.processes.remove(name)


async def test_stopping_takes_the_whole_tree(guest: Guest) -> None:
    script = "setsid sleep 777 & trap '' TERM; echo ready; while :; do sleep 1; done"
    await guest.processes.put("tree", ["bash", "-c", script])
    await guest.processes.start("tree")
    await _logged(guest, "tree", b"ready")
    assert (await guest.exec(["pgrep", "-f", "sleep 777"])).exit_code == 0
    await guest.processes.stop("tree", grace=0.5)
    assert (await guest.exec(["pgrep", "-f", "sleep 777"])).exit_code == 1
    await guest.processes.remove("tree")


@pytest.mark.proves("A6")
async def test_the_log_is_a_ring_that_outlives_restarts(guest: Guest) -> None:
    much = "test -e been || { touch been; head -c 6000000 /dev/zero | tr '\\0' x; echo; }"
    script = f"echo begin; {much}; echo last; exec sleep 300"
    await guest.processes.put("chatty", ["sh", "-c", script])
    await guest.processes.start("chatty")
    async with asyncio.timeout(10):
        while (await guest.processes.get("chatty")).log_end < 6_000_012:
            await asyncio.sleep(0.02)
    process = await guest.processes.get("chatty")
    assert process.log_end - process.log_first <= (4 << 20) + 65536
    tail = await _log(guest, "chatty", tail_bytes=20)
    assert tail.endswith(b"xxx\nlast\n")
    events = [event async for event in guest.processes.logs("chatty", offset=0)]
    assert events[0] == Gap(0, process.log_first)
    await guest.processes.restart("chatty")
    async with asyncio.timeout(10):
        while b"begin\nlast\n" not in await _log(guest, "chatty", offset=process.log_end):
            await asyncio.sleep(0.02)
    assert b"last\nbegin\n" in await _log(guest, "chatty", offset=process.log_end - 5)
    await guest.processes.remove("chatty")


async def test_a_follower_of_the_log_hears_it_across_restarts(guest: Guest) -> None:
    await guest.processes.put("told", ["sh", "-c", "echo run; exec sleep 300"])
    heard: list[bytes] = []

    async def follow() -> None:
        async with aclosing(guest.processes.logs("told", follow=True)) as events:
            async for event in events:
                if isinstance(event, Chunk):
                    heard.append(event.data)

    task = asyncio.create_task(follow())
    await guest.processes.start("told")
    await _until_heard(heard, 1)
    await guest.processes.restart("told")
    await _until_heard(heard, 2)
    await guest.processes.remove("told")
    async with asyncio.timeout(5):
        await task
    assert b"".join(heard) == b"run\nrun\n"


async def _until_heard(heard: list[bytes], count: int) -> None:
    async with asyncio.timeout(10):
        while b"".join(heard).count(b"run\n") < count:
            await asyncio.sleep(0.02)


@pytest.mark.proves("A5")
async def test_what_shall_run_runs_again_after_the_guest_was_killed(
    start_packed: StartPacked,
) -> None:
    form = await start_packed()
    async with Guest(form.address) as guest:
        script = "echo up; exec sleep 888"
        await guest.processes.put("on", ["sh", "-c", script])
        await guest.processes.put("off", ["sleep", "1"])
        old = await guest.processes.start("on")
        await _logged(guest, "on", b"up\n")
        for starts, sandbox_id in enumerate(("sbx_test", "sbx_a_fork"), start=2):
            await form.kill()
            await form.start(sandbox_id=sandbox_id)
            process = await _until(guest, "on", ProcessState.RUNNING)
            await _logged(guest, "on", b"up\n", starts)
            assert (await guest.processes.get("off")).state is ProcessState.STOPPED
            running = (await guest.exec(["pgrep", "-f", "^sleep 888"], user="root")).text.split()
            if sandbox_id == "sbx_test":
                # The one the dead guest left behind is gone: two would fight over a port.
                assert running == [str(process.pid)]
        assert old.pid != process.pid
        assert (await _log(guest, "on")).count(b"up\n") == 3


async def test_a_shutdown_stops_all_and_forgets_no_wish(start_guest: StartGuest) -> None:
    form = await start_guest()
    async with Guest(form.address) as guest:
        script = "trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.05; done"
        await guest.processes.put("svc", ["bash", "-c", script])
        await guest.processes.start("svc")
        await guest.runs.start("run", ["sleep", "300"])
        await _logged(guest, "svc", b"hello")
        await guest.shutdown(grace=3)
        process = await guest.processes.get("svc")
        assert (process.state, process.wanted) == (ProcessState.STOPPED, True)
        assert (await _log(guest, "svc")).endswith(b"bye\n")
        assert (await guest.runs.get("run")).exit is not None
        await form.kill()
        await form.start()
        await _until(guest, "svc", ProcessState.RUNNING)


async def test_what_cannot_be_defined_is_refused(guest: Guest) -> None:
    for name in ("", "a b", "../x", "x" * 65):
        with pytest.raises(InvalidRequest):
            await guest.processes.put(name, ["true"])
    with pytest.raises(InvalidRequest):
        await guest.processes.put("empty", [])
    with pytest.raises(NotFound):
        await guest.processes.start("unknown")
