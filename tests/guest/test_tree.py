"""Deadlines and kills: after them nothing of the command is left, whatever it tried."""

import asyncio
import time

import pytest

from paddock.domain.reason import Reason
from paddock.guest_client import Guest
from paddock.guest_client.commands import Ended, Output, Started
from tests.guest.conftest import StartGuest, StartPacked

pytestmark = pytest.mark.timeout(60)

MARK = "tree-test-marker"
# Forks twice, each time into a session of its own, and changes its name on the way.
DAEMON = f"""
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.setsid()
for fd in (0, 1, 2): os.close(fd)
os.execvp("sleep", ["{MARK}", "987"])
"""
# Forks and exits for ever, so that it is never the process that was just seen.
COMET = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    if os.fork(): os._exit(0)
    os.setsid()
"""
BOMB = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try: os.fork()
    except OSError: pass
"""


async def _running(guest: Guest, pattern: str) -> list[str]:
    result = await guest.exec(["pgrep", "-a", "-f", pattern], user="root")
    return [line for line in result.text.splitlines() if "pgrep" not in line]


@pytest.mark.proves("E3")
async def test_at_the_deadline_the_code_is_124_and_the_output_so_far_is_kept(guest: Guest) -> None:
    result = await guest.exec(["sh", "-c", "echo so far; sleep 300"], timeout=2)
    assert (result.exit_code, result.reason) == (124, Reason.DEADLINE)
    assert result.stdout == b"so far\n"


async def test_a_command_may_end_well_when_its_deadline_passes(guest: Guest) -> None:
    script = "trap 'echo goodbye; exit 0' TERM; echo hello; while :; do sleep 0.05; done"
    result = await guest.exec(["sh", "-c", script], timeout=2)
    assert (result.exit_code, result.reason) == (124, Reason.DEADLINE)
    assert result.stdout == b"hello\ngoodbye\n"


@pytest.mark.slow
@pytest.mark.proves("E3")
async def test_a_command_that_ignores_sigterm_is_killed_after_five_seconds(guest: Guest) -> None:
    began = time.monotonic()
    result = await guest.exec(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], timeout=0.5)
    assert (result.exit_code, result.reason) == (124, Reason.DEADLINE)
    assert 5 < time.monotonic() - began < 30


@pytest.mark.slow
@pytest.mark.proves("E3")
async def test_daemons_that_left_the_session_are_gone_after_the_deadline(guest: Guest) -> None:
    script = f"for i in 1 2 3; do python3 -c '{DAEMON}'; done; sleep 300"
    task = asyncio.create_task(guest.exec(["sh", "-c", script], timeout=10))
    async with asyncio.timeout(9.5):
        while len(await _running(guest, f"^{MARK}")) != 3:
            await asyncio.sleep(0.1)
    assert (await task).exit_code == 124
    assert await _running(guest, MARK) == []


async def test_daemons_that_left_the_session_are_gone_when_their_run_is_ended(guest: Guest) -> None:
    script = f"for i in 1 2 3; do python3 -c '{DAEMON}'; done; sleep 300"
    await guest.runs.start("daemons", ["sh", "-c", script])
    async with asyncio.timeout(20):
        while len(await _running(guest, f"^{MARK}")) != 3:
            await asyncio.sleep(0.05)
    await guest.runs.end("daemons", 1)
    assert [event async for event in guest.runs.tail("daemons")][-1].reason is Reason.CANCELLED
    assert await _running(guest, MARK) == []


@pytest.mark.proves("E3")
async def test_daemons_are_gone_also_when_the_command_itself_ends_on_sigterm(guest: Guest) -> None:
    script = f"trap 'exit 0' TERM; python3 -c '{DAEMON}'; while :; do sleep 0.05; done"
    result = await guest.exec(["sh", "-c", script], timeout=1)
    assert result.exit_code == 124
    assert await _running(guest, MARK) == []


async def test_a_daemon_started_in_answer_to_sigterm_is_gone_too(guest: Guest) -> None:
    script = f"trap \"python3 -c '{DAEMON}'; exit 0\" TERM; while :; do sleep 0.05; done"
    result = await guest.exec(["bash", "-c", script], timeout=0.5)
    assert result.exit_code == 124
    assert await _running(guest, MARK) == []


@pytest.mark.slow
async def test_the_daemons_of_other_commands_are_left_alone(guest: Guest) -> None:
    await guest.exec(["python3", "-c", DAEMON.replace(MARK, "other-daemon")])
    task = asyncio.create_task(
        guest.exec(["sh", "-c", "trap '' TERM; sleep 300; sleep 300"], timeout=0.2)
    )
    await asyncio.sleep(1)
    await guest.exec(["python3", "-c", DAEMON.replace(MARK, "late-daemon")])
    assert (await task).exit_code == 124
    assert len(await _running(guest, "other-daemon")) == 1
    assert len(await _running(guest, "late-daemon")) == 1
    await guest.exec(["pkill", "-f", "-daemon"])


async def test_a_kill_that_comes_too_late_does_not_take_the_daemons_of_others(guest: Guest) -> None:
    await guest.exec(["python3", "-c", DAEMON.replace(MARK, "bystander")])
    # Its program has ended, but it is not done: a child of it still holds its output.
    for script in ("sleep 654 & true", "setsid sleep 655 & true"):
        task = asyncio.create_task(guest.exec(["sh", "-c", script]))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.5)
    async with asyncio.timeout(15):  # on a busy machine it is told late that nobody waits
        while await _running(guest, "^sleep 654"):
            await asyncio.sleep(0.1)
    assert len(await _running(guest, "^bystander")) == 1
    await guest.exec(["pkill", "-f", "bystander|sleep 655"])


@pytest.mark.proves("E3")
async def test_a_process_that_forks_away_for_ever_is_caught(guest: Guest) -> None:
    script = f"python3 -c '{COMET}' & sleep 300"
    result = await guest.exec(["bash", "-c", script], timeout=0.5)
    assert result.exit_code == 124
    for _ in range(20):
        assert await _running(guest, "signal.SIG_IGN") == []


@pytest.mark.slow
@pytest.mark.alone  # it takes every processor there is
@pytest.mark.proves("E3")
async def test_a_fork_bomb_is_gone_after_its_deadline(start_guest: StartGuest) -> None:
    form = await start_guest()
    async with Guest(form.address) as guest:
        script = f"ulimit -u 150; exec python3 -c '{BOMB}'"
        task = asyncio.create_task(guest.exec(["bash", "-c", script], timeout=1, user="games"))
        result = await task
        assert result.exit_code == 124
        left = await guest.exec(["sh", "-c", "ps -o pid= -u games | wc -l"], user="root")
        assert left.text.strip() == "0"


async def test_sigkill_by_pid_ends_the_whole_tree(guest: Guest) -> None:
    script = f"python3 -c '{DAEMON}'; echo up; sleep 300; true"
    events = []
    async for event in guest.start(["sh", "-c", script]):
        events.append(event)
        if event == Output("stdout", b"up\n"):
            assert isinstance(events[0], Started)
            await guest.commands.kill(events[0].pid)
    assert events[-1] == Ended(-1, False, "signal: killed")
    assert await _running(guest, MARK) == []


async def test_who_is_held_still_is_so_with_all_that_left_its_session(guest: Guest) -> None:
    count = "i=0; while :; do i=$((i+1)); echo $i > /tmp/counted; sleep 0.05; done"
    await guest.runs.start("held", ["sh", "-c", f"setsid sh -c '{count}' & sleep 300"])

    async def counted() -> str:
        return (await guest.exec(["cat", "/tmp/counted"])).text

    async def goes_on(since: str) -> None:
        async with asyncio.timeout(30):
            while await counted() == since:
                await asyncio.sleep(0.05)

    await goes_on("")
    await guest.runs.signal("held", "SIGSTOP")
    stood = await counted()
    await asyncio.sleep(0.5)
    assert await counted() == stood
    await guest.runs.signal("held", "SIGCONT")
    await goes_on(stood)
    await guest.runs.end("held", 0.0)


@pytest.mark.parametrize("times", [2, pytest.param(10, marks=pytest.mark.soak)])
async def test_who_is_held_still_is_let_go_on_by_none_of_its_own(guest: Guest, times: int) -> None:
    count = "(i=0; while :; do i=$((i+1)); echo $i > /tmp/ticks; done) & it=$!"
    others = "for n in 1 2 3 4 5 6; do (while :; do kill -CONT $it; done) & done"
    key = f"unruly-{times}"
    await guest.runs.start(key, ["sh", "-c", f"{count}; {others}; wait"])
    states = "cut -d')' -f2- /proc/[0-9]*/stat 2>/dev/null | awk -v s=$1 '$4 == s {print $1}'"

    async def of_all(pid: int) -> set[str]:
        said = await guest.exec(["sh", "-c", states, "sh", str(pid)])
        return set(said.text.split())

    pid = (await guest.runs.get(key)).pid
    for _ in range(times):
        await guest.runs.signal(key, "SIGSTOP")
        while (found := await of_all(pid)) == {"D", "T"}:
            pass  # who waits for a disk stands still as soon as it has it
        assert found == {"T"}
        await guest.runs.signal(key, "SIGCONT")
        async with asyncio.timeout(30):
            while await of_all(pid) == {"T"}:
                await asyncio.sleep(0.01)
    await guest.runs.end(key, 0.0)


# Waits in the kernel, as for a disk, until its child ends; then it writes a file.
DEEP = """
import ctypes, os, platform, signal, time
vfork = 0x4000 | signal.SIGCHLD
clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
child = ctypes.CDLL(None).syscall(clone, vfork, 0, 0, 0, 0)
if child == 0:
    open("/tmp/deep-child", "w").write(str(os.getpid()))
    while not os.path.exists("/tmp/deep-answer"): time.sleep(0.01)
    os._exit(0)
open("/tmp/deep-went-on", "w").write("it did")
"""


async def test_who_waits_in_the_kernel_is_held_though_others_let_it_go_on(guest: Guest) -> None:
    others = "for n in 1 2 3 4 5 6; do (while :; do kill -CONT $it; done) & done"
    script = f"rm -f /tmp/deep-*; python3 -c '{DEEP}' & it=$!; echo $it > /tmp/deep; {others}; wait"
    await guest.runs.start("deep", ["sh", "-c", script])

    async def state(name: str) -> str:
        said = await guest.exec(["sh", "-c", f"cut -d' ' -f3 /proc/$(cat {name})/stat"])
        return said.text.strip()

    async def until(name: str, wanted: str) -> None:
        async with asyncio.timeout(30):
            while await state(name) != wanted:
                await asyncio.sleep(0.01)

    await until("/tmp/deep", "D")
    await until("/tmp/deep-child", "S")
    await guest.runs.signal("deep", "SIGSTOP")
    await guest.exec(["sh", "-c", "touch /tmp/deep-answer; kill -CONT $(cat /tmp/deep-child)"])
    await until("/tmp/deep", "T")
    assert (await guest.exec(["ls", "/tmp/deep-went-on"])).exit_code != 0
    await guest.runs.end("deep", 0.0)


@pytest.mark.proves("E10")
async def test_running_out_of_memory_is_137_with_the_reason(
    memory_cgroup: str, start_packed: StartPacked
) -> None:
    form = await start_packed(cgroup=memory_cgroup)
    async with Guest(form.address) as guest:
        hog = "x = []\nwhile True: x.append(bytearray(1 << 20))"
        result = await guest.exec(["python3", "-c", hog])
        assert (result.exit_code, result.reason) == (137, Reason.OOM)
        result = await guest.exec(["sh", "-c", f"python3 -c '{hog}'"])
        assert (result.exit_code, result.reason) == (137, Reason.OOM)
        result = await guest.exec(["sh", "-c", "kill -9 $$"])
        assert (result.exit_code, result.reason) == (137, Reason.CRASHED)
        usage = await guest.usage()
        assert usage.memory_bytes is not None
        assert usage.memory_limit_bytes == 96 << 20
