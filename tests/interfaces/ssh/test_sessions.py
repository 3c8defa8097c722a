"""Shells and commands over SSH: what goes in, what comes out, and how it ends."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import time
from contextlib import asynccontextmanager

import asyncssh
import pytest

from paddock.guest_client.commands import Ended
from paddock.interfaces.ssh.endings import Ending, ending_of
from paddock.ports.provider import Ref
from tests.interfaces.ssh.conftest import sha256

pytestmark = pytest.mark.timeout(120)
MIB = 1 << 20


@pytest.mark.proves("E7")
@pytest.mark.parametrize("code", [0, 1, 7, 124, 255])
async def test_the_exit_code_is_the_programs(door, code):
    assert (await door.ssh(f"exit {code}")).code == code


@pytest.mark.proves("E7")
async def test_output_and_errors_stay_apart(door):
    done = await door.ssh("echo out; echo err >&2; echo out")
    assert done.stdout == b"out\nout\n"
    assert "err\n" in done.said
    assert "out" not in done.said


@pytest.mark.proves("E7")
async def test_the_line_reaches_the_shell_as_it_was_sent(door):
    assert (await door.ssh("echo 'a  b' \"$((1+1))\" | tr a-z A-Z")).stdout == b"A  B 2\n"
    assert (await door.ssh("nothing-of-this-name")).code == 127


async def test_input_ends_where_it_ends(door):
    done = await door.ssh("wc -c; echo after", stdin=b"x" * 100_000)
    assert done.text.split() == ["100000", "after"]
    assert (await door.ssh("head -c 3", stdin=b"y" * 5_000_000)).stdout == b"yyy"


@asynccontextmanager
async def connected(door):
    """By a client that tells what OpenSSH's keeps to itself."""
    async with asyncssh.connect(
        "127.0.0.1",
        door.port,
        username=door.token,
        known_hosts=None,
        client_keys=None,
        agent_path=None,
        config=None,
    ) as connection:
        yield connection


async def test_a_death_by_signal_is_told_as_one(door):
    async with connected(door) as connection:
        done = await connection.run("kill -SEGV $$")
        assert done.exit_signal[0] == "SEGV"
        assert (await connection.run("exit 3")).exit_status == 3


async def test_a_signal_reaches_the_program(door):
    async with connected(door) as connection:
        script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done"
        async with connection.create_process(script) as process:
            assert await process.stdout.readline() == "ready\n"
            process.send_signal("INT")
            async with asyncio.timeout(20):
                done = await process.wait()
    assert (done.stdout, done.exit_status) == ("caught\n", 5)


def test_every_end_has_its_words():
    assert ending_of(Ended(7, exited=True, status="exit status 7")) == Ending(status=7)
    killed = Ended(-1, exited=False, status="signal: killed")
    assert ending_of(killed) == Ending(signal="KILL")
    odd = Ended(-1, exited=False, status="signal: bad system call")
    assert ending_of(odd) == Ending(signal="SYS@paddock")
    assert ending_of(Ended(-1, exited=False, status="signal: boredom")) == Ending(status=255)


class Screen:
    """The ssh client on a terminal of its own."""

    def __init__(self, master, process):
        self.master = master
        self.process = process
        self.seen = b""

    def size(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.killpg(self.process.pid, signal.SIGWINCH)

    def type(self, text):
        os.write(self.master, text.encode())

    async def until(self, pattern):
        """What is on the screen once the pattern is; the pattern is then forgotten."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(30):
            while not (match := re.search(pattern, self.seen)):
                self.seen += await loop.run_in_executor(None, os.read, self.master, 65536)
        seen, self.seen = self.seen[: match.end()], self.seen[match.end() :]
        return seen


@asynccontextmanager
async def on_screen(door, *words, env=None):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    process = await asyncio.create_subprocess_exec(
        "ssh",
        *door.options("-t", "-oSendEnv=LANG GREETING"),
        f"{door.token}@127.0.0.1",
        *words,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "screen-256color", **(env or {})},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    try:
        yield Screen(master, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master)


@pytest.mark.proves("E7")
async def test_a_shell_has_a_terminal_of_the_right_size_and_kind(door):
    async with on_screen(door, env={"LANG": "C.UTF-8", "GREETING": "hello"}) as screen:
        screen.type("PS1='%'; stty -echo\n")
        await screen.until(rb"%$")
        screen.type("echo [$(stty size)] [$TERM] [$LANG] [$GREETING]; tty\n")
        seen = await screen.until(rb"/dev/pts/\d+")
        assert b"[33 111] [screen-256color] [C.UTF-8] [hello]" in seen
        screen.size(70, 20)
        wait = "until [ \"$(stty size)\" = '20 70' ]; do sleep 0.05; done"
        screen.type(f"{wait}; echo [$(stty size)]\n")
        await screen.until(rb"\[20 70\]")
        screen.type("exit 9\n")
        async with asyncio.timeout(20):
            assert await screen.process.wait() == 9


async def test_control_c_interrupts_what_runs_and_not_the_shell(door):
    async with on_screen(door) as screen:
        screen.type("PS1='%'; stty -echo\n")
        await screen.until(rb"%$")
        # The program itself says that it runs: until then, the interrupt is the shell's.
        screen.type("sh -c 'echo $((6*7)); exec sleep 50'\n")
        await screen.until(rb"42")
        screen.type("\x03")
        await screen.until(rb"%")
        screen.type("echo $((100+11))\n")
        await screen.until(rb"111")


async def test_what_was_started_is_hung_up_with_the_connection(door):
    mark = f"/tmp/hung-{door.box}"
    script = f"trap 'echo hup > {mark}; exit' HUP; echo ready; while :; do sleep 0.05; done"
    process = await asyncio.create_subprocess_exec(
        "ssh",
        *door.options(),
        f"{door.token}@127.0.0.1",
        script,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        stdin=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(20):
        assert await process.stdout.readline() == b"ready\n"
    process.kill()
    await process.wait()
    try:
        async with asyncio.timeout(20):
            while not os.path.exists(mark):
                await asyncio.sleep(0.05)
    finally:
        await door.ssh(f"rm -f {mark}")


@pytest.mark.parametrize("mib", [10, pytest.param(50, marks=pytest.mark.soak)])
async def test_many_megabytes_pass_unchanged_both_ways(door, mib):
    data = os.urandom(mib * MIB)
    done = await door.ssh("tee >(sha256sum >&2)", stdin=data)
    assert sha256(done.stdout) == sha256(data)
    assert sha256(data) in done.said


async def test_twenty_at_once(door):
    async def visit(number):
        data = os.urandom(200_000)
        done = await door.ssh(f"cat; exit {number}", stdin=data)
        return done.code == number and done.stdout == data

    assert all(await asyncio.gather(*(visit(number) for number in range(20))))


async def test_many_sessions_share_one_connection_up_to_a_limit(door):
    async with connected(door) as connection:
        done = await asyncio.gather(*(connection.run(f"echo {n}") for n in range(20)))
        assert [each.stdout for each in done] == [f"{n}\n" for n in range(20)]
        held = [await connection.create_process("cat") for _ in range(64)]
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.create_process("cat")
        for each in held:
            each.stdin.write_eof()
        await asyncio.gather(*(each.wait() for each in held))
        assert (await connection.run("echo room again")).exit_status == 0


async def test_a_reader_that_does_not_read_holds_up_only_itself(door):
    """Nor is what it does not read kept in memory."""
    async with connected(door) as connection:
        async with connection.create_process("head -c 200000000 /dev/zero", encoding=None) as slow:
            await slow.stdout.read(1)
            began = time.monotonic()
            assert (await door.ssh("echo quick")).text == "quick\n"
            assert time.monotonic() - began < 15
            slow.kill()
            slow.close()


async def test_a_stopped_sandbox_is_woken(door):
    path = f"/v1/sandboxes/{door.box}"
    assert (await door.plane.admin.post(f"{path}/stop"))["state"] == "stopped"
    done = await door.ssh("echo awake")
    assert (done.code, done.stdout) == (0, b"awake\n")
    assert "is stopped; it is being started" in done.said
    assert (await door.plane.admin.get(path))["state"] == "running"


async def test_a_sandbox_that_cannot_run_is_explained(door):
    services = door.plane.services
    await door.plane.admin.post(f"/v1/sandboxes/{door.box}/stop")
    record = await services.store.read(lambda tx: tx.sandboxes.get("", door.box))
    provider = services.providers.get(record.provider)
    await provider.destroy(Ref(record.provider, record.ref))
    done = await door.ssh("echo awake")
    assert (done.code, done.stdout) == (255, b"")
    assert "is failed (provider_lost)" in done.said


@pytest.mark.proves("L8")
async def test_an_open_connection_keeps_the_sandbox_from_idling(door):
    activity = door.plane.services.ssh.visits._activity
    assert "ssh" not in activity.doing(door.box)
    async with connected(door):
        assert activity.doing(door.box)["ssh"] == 1
    async with asyncio.timeout(10):
        while activity.doing(door.box):
            await asyncio.sleep(0.02)


@pytest.mark.proves("E8")
async def test_what_a_policy_forbids_is_not_run_by_ssh_either(door):
    rule = {"name": "no-curl", "verdict": "deny", "command": "curl **"}
    made = await door.plane.admin.post(
        "/v1/sandboxes", {"template": "plain", "command_policy": {"rules": [rule]}}
    )
    assert made.status == 201, made.body
    token = (await door.access(box=made["id"]))["token"]
    done = await door.ssh("echo a; curl http://example.org", user=token)
    assert (done.code, done.stdout) == (255, b"")
    assert "curl" in done.said
    assert (await door.ssh("echo a", user=token)).text == "a\n"
    # A shell that one sits at cannot be told beforehand.
    done = await door.ssh(user=token, stdin=b"echo in\n")
    assert (done.code, done.stdout) == (255, b"")
    await door.plane.admin.delete(f"/v1/sandboxes/{made['id']}?force=true")
