"""Exec: a command, its output, its end."""

import asyncio
import time

import pytest

from paddock.domain.errors import InvalidRequest, LimitExceeded, Unauthenticated
from paddock.domain.reason import Reason
from paddock.guest_client import Guest
from tests.guest.conftest import StartGuest
from tests.guest.raw import Raw, as_user, b64

pytestmark = pytest.mark.timeout(30)


@pytest.mark.proves("E1")
async def test_stdout_stderr_and_the_exit_code_come_apart(guest: Guest) -> None:
    result = await guest.exec(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 3)
    assert result.reason is Reason.EXITED


async def test_a_command_runs_as_the_unprivileged_user_in_its_home(guest: Guest) -> None:
    result = await guest.exec(["sh", "-c", "id -un; id -u; id -g; pwd; echo $HOME $USER $LOGNAME"])
    home = "/home/user"
    assert result.text.split() == ["user", "1000", "1000", home, home, "user", "user"]


async def test_a_command_runs_as_another_user_when_told_so(guest: Guest) -> None:
    result = await guest.exec(["sh", "-c", "id -u; pwd; echo $HOME"], user="root")
    assert result.text.split() == ["0", "/root", "/root"]


async def test_http_basic_names_the_user_as_e2b_does(raw: Raw) -> None:
    answer = await raw.rpc(
        "paddock.Guest/Exec", {"cmd": ["id", "-u"]}, authorization=as_user("root")
    )
    assert answer.json()["stdout"] == b64(b"0\n")


async def test_the_environment_has_a_working_path_and_says_where_it_is(guest: Guest) -> None:
    result = await guest.exec(["env"])
    env = dict(line.split("=", 1) for line in result.text.splitlines())
    usual = {f"{at}/{kind}" for at in ("/usr/local", "/usr", "") for kind in ("bin", "sbin")}
    assert set(env["PATH"].split(":")) == {*usual, "/home/user/.local/bin"}
    assert env["LANG"] == "C.UTF-8"
    assert env["SHELL"] == "/bin/bash"
    assert env["E2B_SANDBOX"] == "true"
    assert env["PADDOCK_SANDBOX_ID"]


async def test_the_variables_of_a_call_win_over_those_of_the_sandbox(
    start_guest: StartGuest,
) -> None:
    form = await start_guest()
    async with Guest(form.address) as guest:
        await guest.init(env={"COLOUR": "red", "SHAPE": "round", "LANG": "de_DE"})
        result = await guest.exec(["sh", "-c", "echo $COLOUR $SHAPE $LANG"], env={"COLOUR": "blue"})
    assert result.text == "blue round de_DE\n"


@pytest.mark.proves("E9")
async def test_arguments_reach_the_program_as_they_are(guest: Guest) -> None:
    nasty = ["$(id)", "; rm -rf /", "a b", "", "'\"", "\n", "ünïcödé", "\udcff\udc80"]
    result = await guest.exec(["printf", "%s\\0", *nasty])
    expected = b"".join(a.encode("utf-8", "surrogateescape") + b"\0" for a in nasty)
    assert result.stdout == expected


async def test_a_command_is_looked_up_in_its_own_path(guest: Guest) -> None:
    await guest.files.write("tools/hello-there", b"#!/bin/sh\necho found\n")
    await guest.exec(["chmod", "755", "tools/hello-there"])
    with pytest.raises(InvalidRequest, match="command not found: hello-there"):
        await guest.exec(["hello-there"])
    result = await guest.exec(["hello-there"], env={"PATH": "/home/user/tools:/bin"})
    assert result.text == "found\n"
    assert (await guest.exec(["./hello-there"], cwd="tools")).text == "found\n"


async def test_what_cannot_be_started_is_refused_with_the_reason(guest: Guest) -> None:
    await guest.files.write("data.txt", b"no program")
    await guest.files.write("orphan", b"#!/no/such/interpreter\n")
    await guest.exec(["chmod", "755", "orphan"])
    for argv, reason, code in (
        (["no-such-thing"], "command not found: no-such-thing", 127),
        (["/no/such/thing"], "command not found: /no/such/thing", 127),
        (["./data.txt"], "data.txt is not executable", 126),
        (["/tmp"], "/tmp is not executable", 126),
        (["./orphan"], "its interpreter does not exist", 126),
        ([], "at least a name", None),
        ([""], "needs a name", None),
    ):
        with pytest.raises(InvalidRequest, match=reason) as refused:
            await guest.exec(argv)
        assert refused.value.exit_code == code


async def test_a_missing_or_closed_working_directory_is_refused_with_the_reason(
    guest: Guest,
) -> None:
    with pytest.raises(InvalidRequest, match="/no/where does not exist"):
        await guest.exec(["true"], cwd="/no/where")
    with pytest.raises(InvalidRequest, match="/etc/passwd is not a directory"):
        await guest.exec(["true"], cwd="/etc/passwd")
    with pytest.raises(InvalidRequest, match="/root cannot be entered: permission denied"):
        await guest.exec(["true"], cwd="/root")


async def test_an_unknown_user_is_refused_by_name(guest: Guest) -> None:
    with pytest.raises(Unauthenticated, match="invalid username: 'nobody-here'"):
        await guest.exec(["true"], user="nobody-here")


async def test_standard_input_is_delivered_and_then_ends(guest: Guest) -> None:
    data = bytes(range(256)) * 4096
    result = await guest.exec(["cat"], stdin=data)
    assert result.stdout == data
    assert (await guest.exec(["cat"])).stdout == b""


async def test_a_command_that_does_not_read_its_input_does_not_hang(guest: Guest) -> None:
    result = await guest.exec(["true"], stdin=b"x" * (1 << 20), timeout=5)
    assert result.exit_code == 0


async def test_output_beyond_the_cap_is_left_out_and_said_to_be(guest: Guest) -> None:
    result = await guest.exec(
        ["sh", "-c", "head -c 5000000 /dev/zero; echo e >&2"], max_output=1000
    )
    assert (len(result.stdout), result.truncated, result.stderr) == (1000, True, b"e\n")
    assert not (await guest.exec(["echo"], max_output=1000)).truncated


async def test_dev_stdout_can_be_opened_by_the_user(guest: Guest) -> None:
    result = await guest.exec(["sh", "-c", "echo out > /dev/stdout; echo err > /dev/stderr"])
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")


async def test_a_command_starts_with_default_signals_and_nothing_of_the_guest(guest: Guest) -> None:
    script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l; umask; ulimit -n"
    lines = (await guest.exec(["sh", "-c", script])).text.split()
    assert lines[1] == "0000000000000000"
    assert int(lines[3], 16) == 0
    # 0, 1, 2 and the directory that ls reads.
    assert lines[4] == "4"
    assert lines[5] == "0022"
    # The guest may open more files than it lets its commands.
    assert int(lines[6]) <= 1048576
    assert (await guest.exec(["sh", "-c", "yes | head -1"])).text == "y\n"


async def test_a_command_is_preferred_to_the_guest_when_memory_is_short(guest: Guest) -> None:
    result = await guest.exec(["cat", "/proc/self/oom_score_adj"])
    assert result.text.strip() == "500"


async def test_a_daemon_left_behind_does_not_hold_up_the_end(guest: Guest) -> None:
    began = time.monotonic()
    result = await guest.exec(["sh", "-c", "(sleep 60; echo late) & echo started"])
    assert result.stdout == b"started\n"
    assert time.monotonic() - began < 30
    await guest.exec(["pkill", "sleep"])


async def test_a_daemon_left_behind_is_not_killed_by_writing_to_its_old_output(
    guest: Guest,
) -> None:
    noise = "for i in 1 2 3 4 5 6 7 8; do sleep 0.1; echo noise; done"
    script = f"rm -f survived; ({noise}; touch survived) & true"
    await guest.exec(["sh", "-c", script])
    async with asyncio.timeout(10):
        while (await guest.exec(["test", "-e", "survived"])).exit_code != 0:
            await asyncio.sleep(0.05)


async def test_output_written_just_after_the_end_is_still_taken(guest: Guest) -> None:
    result = await guest.exec(["bash", "-c", "echo hello > >(sleep 0.02; cat)"])
    assert result.stdout == b"hello\n"


async def test_a_death_by_signal_is_128_and_the_number(guest: Guest) -> None:
    result = await guest.exec(["sh", "-c", "kill -SEGV $$"])
    assert (result.exit_code, result.reason) == (139, Reason.CRASHED)


async def test_a_request_that_is_too_large_is_refused(raw: Raw) -> None:
    answer = await raw.rpc("paddock.Guest/Exec", b'{"cmd":["' + b"x" * (17 << 20) + b'"]}')
    assert answer.status == 429
    assert "larger than" in answer.json()["message"]


async def test_too_many_arguments_are_refused_by_the_kernel_and_said_so(guest: Guest) -> None:
    with pytest.raises((InvalidRequest, LimitExceeded), match="argument list too long"):
        await guest.exec(["true", *["x" * 100_000] * 100])


async def test_a_caller_that_goes_away_takes_its_command_with_it(guest: Guest) -> None:
    async def until(running: bool) -> None:
        async with asyncio.timeout(10):
            while ((await guest.exec(["pgrep", "-f", "sleep 4321"])).exit_code == 0) != running:
                await asyncio.sleep(0.05)

    task = asyncio.create_task(guest.exec(["sh", "-c", "sleep 4321; true"]))
    await until(running=True)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until(running=False)


async def test_commands_can_use_sudo(guest: Guest) -> None:
    assert (await guest.exec(["sudo", "-n", "id", "-u"])).text == "0\n"


async def test_many_commands_at_once_do_not_mix(guest: Guest) -> None:
    results = await asyncio.gather(*(guest.exec(["echo", str(n)]) for n in range(100)))
    assert [result.text for result in results] == [f"{n}\n" for n in range(100)]
