"""Durable runs: promise 2 lives here."""

import asyncio
import time
from contextlib import aclosing

import pytest

from paddock.domain.errors import Conflict, InvalidRequest, NotFound
from paddock.domain.reason import Reason
from paddock.guest_client import Guest
from paddock.guest_client.runs import Chunk, Gap, RunExit, TailEvent
from tests.guest.conftest import StartGuest, StartPacked
from tests.guest.forms import GuestForm, PackedGuest
from tests.guest.raw import Raw

pytestmark = pytest.mark.timeout(60)


async def _tail(guest: Guest, key: str, **options: object) -> list[TailEvent]:
    return [event async for event in guest.runs.tail(key, **options)]  # type: ignore[arg-type]


async def _output(guest: Guest, key: str, **options: object) -> bytes:
    events = await _tail(guest, key, **options)
    return b"".join(event.data for event in events if isinstance(event, Chunk))


async def _exit(guest: Guest, key: str) -> RunExit:
    last = (await _tail(guest, key))[-1]
    assert isinstance(last, RunExit)
    return last


async def test_a_run_keeps_its_output_and_its_end_until_acknowledged(guest: Guest) -> None:
    run = await guest.runs.start("r1", ["sh", "-c", "echo out; echo err >&2; exit 4"])
    assert (run.key, run.user, run.cwd) == ("r1", "user", "/home/user")
    exit_ = await _exit(guest, "r1")
    assert (exit_.exit_code, exit_.reason) == (4, Reason.EXITED)
    assert exit_.started_at <= exit_.ended_at <= time.time()
    assert exit_.max_rss_bytes > 0
    for _ in range(2):
        assert await _output(guest, "r1") == b"out\n"
        assert await _output(guest, "r1", stream="stderr") == b"err\n"
    assert (await guest.runs.get("r1")).exit == exit_
    await guest.runs.ack("r1")
    await guest.runs.ack("r1")
    with pytest.raises(NotFound):
        await guest.runs.get("r1")
    left = await guest.exec(
        ["sh", "-c", "ls /var/lib/paddock/runs /var/lib/paddock/inboxes"], user="root"
    )
    assert "r1" not in left.text


async def test_the_same_key_starts_the_same_run_once(guest: Guest) -> None:
    argv = ["sh", "-c", "echo x >> counted; sleep 0.3"]
    runs = await asyncio.gather(*(guest.runs.start("r2", argv) for _ in range(10)))
    assert len({run.pid for run in runs}) == 1
    await _exit(guest, "r2")
    again = await guest.runs.start("r2", argv)
    assert again.exit is not None
    assert await guest.files.read("counted") == b"x\n"
    with pytest.raises(Conflict, match="another request"):
        await guest.runs.start("r2", ["true"])
    with pytest.raises(Conflict):
        await guest.runs.start("r2", argv, env={"A": "1"})
    await guest.runs.ack("r2")


async def test_what_cannot_be_started_leaves_no_run(guest: Guest) -> None:
    with pytest.raises(InvalidRequest, match="command not found"):
        await guest.runs.start("r3", ["no-such-thing"])
    with pytest.raises(NotFound):
        await guest.runs.get("r3")
    for key in ("", "../x", "a/b", ".hidden", "x" * 200, "a b"):
        with pytest.raises(InvalidRequest):
            await guest.runs.start(key, ["true"])


@pytest.mark.proves("E6", "E12")
async def test_a_tail_goes_on_from_any_offset(guest: Guest) -> None:
    await guest.runs.start("r4", ["seq", "1", "20000"])
    await _exit(guest, "r4")
    expected = b"".join(b"%d\n" % n for n in range(1, 20001))
    assert await _output(guest, "r4") == expected
    for offset in (0, 1, 4095, 4096, 50_000, len(expected) - 1, len(expected)):
        assert await _output(guest, "r4", offset=offset) == expected[offset:]
    with pytest.raises(InvalidRequest, match="past the end"):
        await _tail(guest, "r4", offset=len(expected) + 1)
    await guest.runs.ack("r4")


@pytest.mark.proves("E6")
async def test_a_tail_follows_a_run_through_broken_connections(guest: Guest) -> None:
    script = "for i in $(seq 1 40); do echo line $i; sleep 0.03; done"
    await guest.runs.start("r5", ["sh", "-c", script])
    seen, offset, ended = b"", 0, False
    while not ended:
        async with aclosing(guest.runs.tail("r5", offset=offset)) as events:
            async for event in events:
                if isinstance(event, RunExit):
                    ended = True
                elif isinstance(event, Chunk):
                    seen += event.data
                    offset = event.offset + len(event.data)
                    if offset % 3 == 0:
                        break
    assert seen == b"".join(b"line %d\n" % n for n in range(1, 41))
    await guest.runs.ack("r5")


async def test_a_tail_without_follow_ends_with_what_is_there(guest: Guest) -> None:
    await guest.runs.start("r6", ["sh", "-c", "echo now; sleep 30"])
    await _written(guest, "r6", "stdout", len(b"now\n"))
    events = await _tail(guest, "r6", follow=False)
    assert events == [Chunk(0, b"now\n")]
    await guest.runs.end("r6", grace=0)
    exit_ = await _exit(guest, "r6")
    assert (exit_.exit_code, exit_.reason) == (137, Reason.CANCELLED)
    await guest.runs.ack("r6")


async def test_a_running_run_cannot_be_forgotten(guest: Guest) -> None:
    await guest.runs.start("r7", ["sleep", "30"])
    with pytest.raises(Conflict, match="has not ended"):
        await guest.runs.ack("r7")
    await guest.runs.signal("r7", "SIGTERM")
    exit_ = await _exit(guest, "r7")
    assert (exit_.exit_code, exit_.reason) == (143, Reason.CANCELLED)
    with pytest.raises(Conflict, match="has ended"):
        await guest.runs.signal("r7")
    await guest.runs.ack("r7")


@pytest.mark.proves("E3")
async def test_the_deadline_of_a_run_is_124_with_its_output(guest: Guest) -> None:
    await guest.runs.start("r8", ["sh", "-c", "echo so far; sleep 60"], timeout=3)
    exit_ = await _exit(guest, "r8")
    assert (exit_.exit_code, exit_.reason) == (124, Reason.DEADLINE)
    assert await _output(guest, "r8") == b"so far\n"
    await guest.runs.ack("r8")


async def test_input_is_given_at_the_start_or_later(guest: Guest) -> None:
    await guest.runs.start("r9", ["cat"], stdin=b"at once")
    assert await _output(guest, "r9") == b"at once"
    await guest.runs.start("r10", ["cat"], stdin=b"first ", keep_stdin_open=True)
    await guest.runs.send_input("r10", b"second")
    await guest.runs.close_input("r10")
    assert await _output(guest, "r10") == b"first second"
    with pytest.raises(Conflict):
        await guest.runs.send_input("r9", b"too late")
    for key in ("r9", "r10"):
        await guest.runs.ack(key)


async def test_numbered_input_is_taken_once_and_in_order(guest: Guest) -> None:
    await guest.runs.start("r12", ["cat"], keep_stdin_open=True)
    for seq, data in ((1, b"one "), (1, b"one "), (2, b"two "), (1, b"one ")):
        await guest.runs.send_input("r12", data, seq=seq)
    with pytest.raises(Conflict, match="was sent input 4, and has only 2 before it"):
        await guest.runs.send_input("r12", b"four", seq=4)
    await guest.runs.close_input("r12")
    assert await _output(guest, "r12") == b"one two "
    await guest.runs.ack("r12")


async def test_input_that_could_not_be_written_is_not_taken_for_written(guest: Guest) -> None:
    await guest.runs.start(
        "deaf", ["sh", "-c", "exec <&-; echo deaf; sleep 300"], keep_stdin_open=True
    )
    async with asyncio.timeout(30):
        while not (await _tail(guest, "deaf", follow=False)):
            await asyncio.sleep(0.02)
    for _ in range(2):
        with pytest.raises(Conflict, match=r"reads no more|no open input"):
            await guest.runs.send_input("deaf", b"x", seq=1)
    await guest.runs.end("deaf", grace=0)
    await _exit(guest, "deaf")
    await guest.runs.ack("deaf")


async def test_input_sent_again_while_it_is_written_waits_for_the_same_end(guest: Guest) -> None:
    script = "rm -f go; echo up; while [ ! -e go ]; do sleep 0.02; done; wc -c"
    await guest.runs.start("slow", ["sh", "-c", script], keep_stdin_open=True)
    async with asyncio.timeout(30):
        while not (await _tail(guest, "slow", follow=False)):
            await asyncio.sleep(0.02)
    data = b"x" * (1 << 20)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await guest.runs.send_input("slow", data, seq=1)
    again = asyncio.create_task(guest.runs.send_input("slow", data, seq=1))
    done, _ = await asyncio.wait({again}, timeout=0.5)
    assert not done
    await guest.exec(["touch", "go"])
    await again
    await guest.runs.send_input("slow", b"y", seq=2)
    await guest.runs.close_input("slow")
    assert (await _output(guest, "slow")).split() == [b"up", b"%d" % (len(data) + 1)]
    await guest.runs.ack("slow")


@pytest.mark.proves("E5")
async def test_a_run_may_have_a_terminal(guest: Guest) -> None:
    script = "trap 'stty size' WINCH; stty size; read line; sleep 0.2; echo got $line"
    run = await guest.runs.start("r11", ["bash", "-c", script], terminal=(100, 30))
    assert set(run.streams) == {"pty"}
    await _written(guest, "r11", "pty", len(b"30 100\r\n"))
    await guest.runs.resize("r11", 120, 40)
    await guest.runs.send_input("r11", b"hello\n")
    output = await _output(guest, "r11")
    assert b"30 100" in output
    assert b"40 120" in output
    assert b"got hello" in output
    await guest.runs.ack("r11")


async def _written(guest: Guest, key: str, stream: str, size: int) -> None:
    async with asyncio.timeout(10):
        while (await guest.runs.get(key)).streams[stream].end < size:
            await asyncio.sleep(0.02)


async def _held_up(guest: Guest, key: str) -> None:
    """Wait until a run has written something and writes no more."""
    end = 0
    async with asyncio.timeout(10):
        while True:
            await asyncio.sleep(0.3)
            now = (await guest.runs.get(key)).streams["stdout"].end
            if 0 < now == end:
                return
            end = now


async def test_the_log_cap_holds_a_program_up_until_its_output_is_acknowledged(
    guest: Guest, shared: GuestForm
) -> None:
    script = "head -c 3000000 /dev/zero; echo END; touch finished"
    await guest.exec(["rm", "-f", "finished"])
    await guest.runs.start("r12", ["sh", "-c", script], log_cap=200_000)
    await _held_up(guest, "r12")
    run = await guest.runs.get("r12")
    assert run.exit is None
    assert 200_000 <= run.streams["stdout"].end <= 200_000 + 65536
    size, offset = 0, 0
    async with aclosing(guest.runs.tail("r12")) as events:
        async for event in events:
            assert not isinstance(event, Gap)
            if isinstance(event, Chunk):
                size += len(event.data)
                offset = event.offset + len(event.data)
                await guest.runs.ack("r12", {"stdout": offset})
            else:
                assert event.exit_code == 0
    assert size == 3_000_004
    kept = await guest.exec(
        ["sh", "-c", f"du -sb {shared.state_dir}/runs/r12 | cut -f1"], user="root"
    )
    assert int(kept.text) < 300_000
    run = await guest.runs.get("r12")
    assert run.streams["stdout"].acked == offset
    first = run.streams["stdout"].first
    assert (await _tail(guest, "r12", offset=0))[0] == Gap(0, first)
    await guest.runs.ack("r12")


@pytest.mark.proves("E12")
async def test_a_log_that_drops_says_which_bytes_are_gone(guest: Guest) -> None:
    script = "seq 1 200000"
    await guest.runs.start("r13", ["sh", "-c", script], log_cap=100_000, drop_when_full=True)
    exit_ = await _exit(guest, "r13")
    assert exit_.exit_code == 0
    expected = b"".join(b"%d\n" % n for n in range(1, 200_001))
    events = await _tail(guest, "r13")
    assert isinstance(events[0], Gap)
    assert (events[0].start, isinstance(events[-1], RunExit)) == (0, True)
    kept = b"".join(event.data for event in events if isinstance(event, Chunk))
    assert kept == expected[events[0].end :]
    assert 50_000 < len(kept) <= 100_000 + 65536
    run = await guest.runs.get("r13")
    assert run.streams["stdout"].gaps == ((0, events[0].end),)
    await guest.runs.ack("r13")


async def test_a_guest_killed_and_started_again_keeps_ended_runs(start_guest: StartGuest) -> None:
    form = await start_guest()
    async with Guest(form.address) as guest:
        await guest.runs.start("done", ["sh", "-c", "echo kept; exit 9"])
        before = await _exit(guest, "done")
        await guest.runs.ack("done", {"stdout": 2})
        await form.kill()
        await form.start()
        assert (await guest.runs.get("done")).exit == before
        assert (await guest.runs.get("done")).streams["stdout"].acked == 2
        assert await _output(guest, "done") == b"kept\n"
        again = await guest.runs.start("done", ["sh", "-c", "echo kept; exit 9"])
        assert again.exit == before
        await guest.runs.ack("done")
        await form.kill()
        await form.start()
        assert await guest.runs.list() == []


async def test_a_run_whose_guest_died_is_over_and_its_program_gone(start_guest: StartGuest) -> None:
    form = await start_guest()
    async with Guest(form.address) as guest:
        script = "setsid sleep 555 & echo started; while :; do sleep 0.1; done"
        await guest.runs.start("lost", ["sh", "-c", script])
        await _written(guest, "lost", "stdout", len(b"started\n"))
        await form.kill()
        await form.start()
        run = await guest.runs.get("lost")
        assert run.exit is not None
        assert (run.exit.exit_code, run.exit.reason) == (-1, Reason.PROVIDER_LOST)
        assert await _output(guest, "lost") == b"started\n"
        for _ in range(30):
            left = await guest.exec(["pgrep", "-f", "sleep 555|while :"], user="root")
            if left.exit_code == 1:
                return
            await asyncio.sleep(0.1)
        pytest.fail(f"still running: {left.text}")


async def test_a_snapshot_that_starts_as_another_sandbox_has_no_runs(
    start_packed: StartPacked,
) -> None:
    form = await start_packed()
    async with Guest(form.address) as guest:
        await guest.runs.start("old", ["true"])
        await _exit(guest, "old")
        await form.kill()
        await form.start(sandbox_id="sbx_other")
        assert await guest.runs.list() == []
        left = await guest.exec(["find", "/var/lib/paddock", "-name", "*old*"], user="root")
        assert left.text == ""
        await guest.runs.start("old", ["false"])
        assert (await _exit(guest, "old")).exit_code == 1
        await guest.init(sandbox_id="sbx_third")
        assert await guest.runs.list() == []
        assert (await guest.exec(["sh", "-c", "echo $PADDOCK_SANDBOX_ID"])).text == "sbx_third\n"


async def test_a_guest_that_is_told_to_end_ends_its_runs_and_writes_it_down(
    start_guest: StartGuest,
) -> None:
    form = await start_guest()
    async with Guest(form.address) as guest:
        await guest.runs.start(
            "ending",
            ["sh", "-c", "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.1; done"],
        )
        await _written(guest, "ending", "stdout", len(b"up\n"))
        await form.stop()
        await form.start()
        run = await guest.runs.get("ending")
        assert run.exit is not None
        assert (run.exit.exit_code, run.exit.reason) == (3, Reason.CANCELLED)
        assert await _output(guest, "ending") == b"up\nbye\n"


async def test_the_users_programs_cannot_read_the_logs(guest: Guest, shared: GuestForm) -> None:
    await guest.runs.start("r14", ["sh", "-c", f"ls {shared.state_dir}/runs"])
    exit_ = await _exit(guest, "r14")
    assert exit_.exit_code != 0
    assert b"Permission denied" in await _output(guest, "r14", stream="stderr")
    await guest.runs.ack("r14")


async def test_a_tail_is_told_of_a_gap_in_a_frame_of_its_own(guest: Guest, raw: Raw) -> None:
    await guest.runs.start("r15", ["seq", "1", "50000"], log_cap=8192, drop_when_full=True)
    await _exit(guest, "r15")
    async with raw.stream("paddock.Guest/TailRun", {"key": "r15", "offset": 0}) as stream:
        first = (await stream.next())[1]
        assert first["gap"]["from"] == 0
        second = (await stream.next())[1]
        assert second["offset"] == first["gap"]["to"]
        frames = await stream.all()
    assert frames[-2][1]["exit"]["exitCode"] == 0
    assert frames[-1] == (2, {})
    await guest.runs.ack("r15")


async def test_a_full_disk_holds_a_run_up_and_does_not_lose_output(
    start_packed: StartPacked,
) -> None:
    form: PackedGuest = await start_packed(state_dir="/run/small/state")
    async with Guest(form.address) as guest:
        await guest.exec(["sh", "-c", "head -c 600000 /dev/zero > /run/small/filler"])
        await guest.runs.start("full", ["seq", "1", "100000"])
        await _held_up(guest, "full")
        assert (await guest.runs.get("full")).exit is None
        await guest.exec(["rm", "/run/small/filler"])
        expected = b"".join(b"%d\n" % n for n in range(1, 100_001))
        assert await _output(guest, "full") == expected
