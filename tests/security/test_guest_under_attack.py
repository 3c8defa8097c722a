"""What a program of the sandbox's user cannot do to the guest, or by way of it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from paddock.domain.errors import Conflict, Forbidden, PaddockError
from paddock.guest_client import Guest
from tests.security.conftest import Fenced
from tests.security.test_fence import sandbox

pytestmark = pytest.mark.timeout(120)

# A command that is being started is the user's for a moment before it is its program. The attacker
# waits for each new process to become its own, and then sends its signal for so many seconds.
ATTACKER = """
import os, signal, sys, time
number, seconds = signal.Signals[sys.argv[1]], float(sys.argv[2])
def newest():
    return int(open("/proc/loadavg").read().split()[-1])
print("on", flush=True)
victim = newest() + 1
tries = 0
while True:
    try:
        os.kill(victim, number)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            os.kill(victim, number)
        victim += 1
    except PermissionError:
        pass
    except ProcessLookupError:
        tries += 1
        if tries % 200 == 0:
            victim = max(victim, newest() + 1)
"""


@asynccontextmanager
async def attacked(guest: Guest, signal: str, seconds: str) -> AsyncIterator[None]:
    """The attack is on; it ends with everything that the user runs."""
    await guest.runs.start("attack", ["python3", "-c", ATTACKER, signal, seconds])
    async for event in guest.runs.tail("attack"):
        assert event.data == b"on\n"  # type: ignore[union-attr]
        break
    try:
        yield
    finally:
        await guest.exec(["pkill", "-KILL", "-u", "user"], user="root", timeout=10)


async def attempt(guest: Guest, outcomes: list[str]) -> None:
    """One command of the user: how it ended, which is never as an accident of the guest's."""
    try:
        result = await guest.exec(["true"], timeout=5)
    except Conflict as refusal:
        assert "kept stopping it" in str(refusal)
        outcomes.append("refused")
    else:
        outcomes.append(f"{result.exit_code}")


@pytest.mark.parametrize("rounds", [5, pytest.param(20, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("signal", "seconds"),
    [("SIGSTOP", "0"), ("SIGSTOP", "0.3"), ("SIGTERM", "0"), ("SIGKILL", "0"), ("SIGQUIT", "0")],
)
async def test_signals_to_a_command_that_is_being_started_do_not_hold_up_the_guest(
    fenced: Fenced, signal: str, seconds: str, rounds: int
) -> None:
    outcomes: list[str] = []
    slowest = 0.0
    commands: list[asyncio.Task[None]] = []
    async with sandbox(fenced) as (ref, guest), Guest(await fenced.provider.guest(ref)) as other:
        async with attacked(guest, signal, seconds):
            for _ in range(rounds):
                for _ in range(15):
                    commands.append(asyncio.create_task(attempt(guest, outcomes)))
                    await asyncio.sleep(0.01)
                start = time.monotonic()
                async with asyncio.timeout(10):
                    await other.health()
                slowest = max(slowest, time.monotonic() - start)
            result = await other.exec(["echo", "alive"], user="root")
            assert result.stdout == b"alive\n"
        await asyncio.gather(*commands)
        assert (await guest.exec(["echo", "alive"])).stdout == b"alive\n"
    assert len(outcomes) == rounds * 15
    assert slowest < 3


@pytest.mark.proves("S6")
async def test_in_a_hardened_sandbox_no_link_leads_a_caller_to_roots_files(fenced: Fenced) -> None:
    """Without sudo inside, what a caller does in the user's name must not be done as root."""
    script = "cp /etc/shadow /etc/secret && chmod 600 /etc/secret && mkdir -m 700 /etc/secrets"
    async with sandbox(fenced, hardened=True) as (_, guest):
        assert (await guest.exec(["sh", "-c", script], user="root")).exit_code == 0
        assert (await guest.exec(["sudo", "-n", "true"])).exit_code != 0
        await guest.exec(["ln", "-s", "/etc/secret", "notes"])
        await guest.exec(["ln", "-s", "/etc", "work"])
        files = guest.files
        for attempt in (
            files.read("notes"),
            files.write("notes", b"mine now"),
            files.write("notes", b"mine now" * (1 << 18)),
            files.write("work/profile.d/own.sh", b"echo hello, root"),
            files.list("work/secrets"),
            files.make_dir("work/sudoers.d/own"),
            files.move("notes", "work/ld.so.preload"),
            files.move("work/secret", "taken"),
            files.remove("work/secrets"),
        ):
            with pytest.raises(Forbidden):
                await attempt
        status = await guest.exec(["stat", "-c", "%U %a", "/etc/secret"])
        assert status.text == "root 600\n"
        assert await files.read("/etc/secret", user="root") == await files.read(
            "/etc/shadow", user="root"
        )


@pytest.mark.proves("P10", "S6")
@pytest.mark.parametrize("user", ["user", "root"])
async def test_the_file_api_shows_nothing_of_the_guest_itself(fenced: Fenced, user: str) -> None:
    """Every thread of it has its own entry in /proc, and is asked by somebody who may: itself."""
    async with sandbox(fenced) as (_, guest):
        await asyncio.gather(*(guest.exec(["true"]) for _ in range(4)))  # its helpers have come
        for number in range(1, 40):
            for name in ("environ", "maps", "fd/0", "mem", "task"):
                shown = b""
                with suppress(PaddockError):
                    shown = await guest.files.read(f"/proc/{number}/{name}", user=user)
                assert b"PYTEST_CURRENT_TEST" not in shown
                if not fenced.has_own_kernel:  # there it is a program of the image like others
                    assert b"python" not in shown
