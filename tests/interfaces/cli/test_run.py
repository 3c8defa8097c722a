"""`paddock sandbox run`: streams, exit codes, deadlines, interrupts, and nothing left behind."""

import base64
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from tests.interfaces.cli.conftest import PADDOCK

ALL_BYTES = bytes(range(256))


@pytest.mark.proves("L14", "E4")
@pytest.mark.parametrize("code", [0, 1, 7, 124, 255])
def test_the_exit_code_is_the_commands_own_and_the_sandbox_is_gone(cli, code):
    done = cli.run("--", "sh", "-c", f"echo out; echo err >&2; exit {code}")
    assert (done.returncode, done.stdout, done.stderr) == (code, b"out\n", b"err\n")
    assert cli.left() == []


@pytest.mark.proves("E4")
def test_a_death_by_signal_is_128_and_its_number(cli):
    assert cli.run("--", "sh", "-c", "kill -TERM $$").returncode == 143


@pytest.mark.proves("E1")
def test_every_byte_passes_through_both_ways(cli):
    data = ALL_BYTES * 8192
    done = cli.run("--", "sh", "-c", "tee /dev/stderr", stdin=data)
    assert done.returncode == 0
    assert done.stdout == data
    assert done.stderr == data


def test_a_command_that_reads_nothing_does_not_wait_for_its_input(cli):
    assert cli.run("--", "true", stdin=ALL_BYTES * 8192).returncode == 0


@pytest.mark.proves("E2")
def test_output_arrives_while_the_command_still_runs(cli):
    process = cli.start(*cli.run_arguments("--", "sh", "-c", "echo first; sleep 100"))
    try:
        assert process.stdout.readline() == b"first\n"
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


@pytest.mark.proves("L14", "E3", "E4")
def test_a_deadline_ends_it_with_124_and_what_it_said_before(cli):
    done = cli.run("--timeout", "1s", "--", "sh", "-c", "echo before; sleep 60")
    assert done.returncode == 124
    assert done.stdout == b"before\n"
    assert done.stderr == b"note: ended at its deadline of 1 s\n"
    assert cli.left() == []


def test_memory_that_runs_out_ends_it_with_137(cli):
    assert cli.run("--memory", "32m", "--", "tail", "/dev/zero").returncode == 137
    assert cli.left() == []


@pytest.mark.proves("C9", "L14")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_removes_the_sandbox(cli, number):
    process = cli.start(*cli.run_arguments("--", "sh", "-c", "echo go; sleep 100"))
    assert process.stdout.readline() == b"go\n"
    os.killpg(process.pid, number)  # as Ctrl-C does: everything in the foreground gets it
    process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert cli.left() == []


@pytest.mark.proves("C9", "L7")
@pytest.mark.parametrize("delay", [0, 0.05, 0.1, 0.2, 0.4])
def test_an_interrupt_at_any_moment_leaves_nothing(cli, delay):
    process = cli.start(*cli.run_arguments("--", "sleep", "100"))
    wait_until_ours(process.pid)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode in (130, -signal.SIGINT), said
    assert b"Traceback" not in said
    assert cli.left() == []


def wait_until_ours(pid):
    """Before, the interpreter handles an interrupt, with a traceback. Paddock takes it over with
    its first line, and handles it itself again a few milliseconds later."""
    for _ in range(200):
        state = Path(f"/proc/{pid}/status").read_text()
        caught, ignored = (
            int(state.partition(name)[2].split()[0], 16) for name in ("SigCgt:", "SigIgn:")
        )
        is_python = ignored & 1 << (signal.SIGPIPE - 1)
        if is_python and not caught & 1 << (signal.SIGINT - 1):
            return
        time.sleep(0.001)


def test_a_reader_that_leaves_ends_the_command(cli):
    process = cli.start(*cli.run_arguments("--", "yes"))
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    assert process.wait(timeout=30) == 128 + signal.SIGPIPE
    assert process.stderr.read() == b""
    process.stderr.close()
    assert cli.left() == []


@pytest.mark.proves("C2")
def test_what_stands_after_the_dashes_belongs_to_the_command(cli):
    done = cli.run("--", "echo", "--help", "-o", "json", "--", "--timeout")
    assert done.stdout == b"--help -o json -- --timeout\n"
    assert cli.run("echo", "--help", "-t").stdout == b"--help -t\n"
    assert b"Usage: paddock sandbox run" in cli.run("--help").stdout


@pytest.mark.proves("C2", "E9")
def test_arguments_arrive_as_they_are_and_a_single_line_goes_to_the_shell(cli):
    odd = ["a b", "$HOME", "`id`", "", "*", "'\"\\", "größer ☃"]
    done = cli.run("--", "printf", "%s\\n", *odd)
    assert done.stdout.decode().splitlines() == odd
    assert cli.run("--", "echo one | tr a-z A-Z && exit 3").stdout == b"ONE\n"


@pytest.mark.proves("K10")
def test_variables_come_from_options_and_files(cli, tmp_path):
    file = tmp_path / "vars.env"
    file.write_text("# comment\n\nexport A=from file\nB='quoted'\nC=a=b,c\n")
    done = cli.run("--env-file", str(file), "--env", "A=from option", "--env", "D=", "--", "env")
    found = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
    assert [found[name] for name in "ABCD"] == ["from option", "quoted", "a=b,c", ""]


def test_user_and_directory_are_honoured(cli):
    done = cli.run("--user", "root", "--workdir", "/tmp", "--", "sh", "-c", "id -u; pwd")
    assert done.stdout == b"0\n/tmp\n"
    done = cli.run("--", "sh", "-c", "id -un; pwd")
    assert done.stdout == b"user\n/home/user\n"


@pytest.mark.proves("P13")
def test_limits_are_honoured(cli):
    done = cli.run("--pids", "20", "--", "sh", "-c", "for i in $(seq 40); do sleep 5 & done")
    assert b"can't fork" in done.stderr


def test_files_and_directories_are_copied_in(cli, tmp_path):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "odd name").write_bytes(ALL_BYTES)
    script = source / "script"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    (source / "link").symlink_to("script")
    done = cli.run(
        *("--copy", f"{source}:tree", "--copy", f"{script}:bin/", "--copy", f"{script}:/tmp/x"),
        *("--", "sh", "-c", "./bin/script; /tmp/x; ./tree/link; cat 'tree/deep/odd name'"),
    )
    assert done.stdout == b"ran\nran\nran\n" + ALL_BYTES
    assert done.stderr == b""


def test_a_copy_that_cannot_be_made_ends_the_run_and_leaves_nothing(cli, tmp_path):
    done = cli.run("--copy", f"{tmp_path}:/etc/mine", "--", "true")
    assert done.returncode == 1
    assert b"copying into the sandbox failed" in done.stderr
    assert cli.left() == []


@pytest.mark.proves("C4", "L14")
def test_json_is_one_record_with_the_same_exit_code(cli):
    done = cli.run("-o", "json", "--", "sh", "-c", "cat; echo err >&2; exit 9", stdin=b"\xff")
    record = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (9, b"")
    assert (record["exit_code"], record["reason"], record["kept"]) == (9, "exited", False)
    assert record["stderr"] == "err\n"
    assert base64.b64decode(record["stdout_base64"]) == b"\xff"
    assert record["sandbox"].startswith("local/")


def test_json_does_not_wait_for_the_end_of_an_input_that_nobody_reads(cli):
    command = [*PADDOCK, *cli.run_arguments("-o", "json", "--", "echo", "done")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=cli.environment, stdin=pipe, stdout=pipe) as process:
        assert json.loads(process.stdout.read())["stdout"] == "done\n"
        assert process.wait(timeout=30) == 0


def test_json_says_when_it_leaves_output_out(cli):
    done = cli.run("-o", "json", "--", "head", "-c", "9000000", "/dev/zero")
    record = json.loads(done.stdout)
    assert record["truncated"] is True
    assert len(record["stdout"]) == 8 << 20


@pytest.mark.proves("L14", "C1")
def test_a_kept_sandbox_is_named_and_can_be_used_and_removed(cli):
    done = cli.run("--keep", "--env", "KEY=value", "--", "sh", "-c", "echo mine > file")
    (ref,) = cli.left()
    assert done.stderr.decode() == f"kept {ref}\n"
    again = cli("sandbox", "exec", ref, "--", "sh", "-c", "cat file; echo $KEY; exit 4")
    assert (again.returncode, again.stdout) == (4, b"mine\nvalue\n")
    assert cli("sandbox", "rm", ref).returncode == 0
    assert cli.left() == []


@pytest.mark.proves("E5")
def test_at_a_terminal_the_command_has_one_of_the_same_size(cli):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    process = subprocess.Popen(
        [*PADDOCK, *cli.run_arguments("--", "sh")],
        env={**cli.environment, "TERM": "vt100"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    os.close(slave)
    before = termios.tcgetattr(master)
    try:
        _expect(master, b"$ ")
        os.write(master, b"echo size $(stty size) on $TERM\r")
        _expect(master, b"size 30 100 on vt100")
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        os.write(master, b"until [ \"$(stty size)\" = '40 120' ]; do :; done; echo size $?\r")
        _expect(master, b"size 0")
        os.write(master, b"sh -c 'echo $((6 * 7)); exec sleep 100'\r")
        _expect(master, b"42\r\n")
        os.write(master, b"\x03")  # goes to the command, not to us
        os.write(master, b"echo ended with $?\r")
        _expect(master, b"ended with 130")
        os.write(master, b"exit 5\r")
        assert process.wait(timeout=30) == 5
        assert termios.tcgetattr(master) == before, "the terminal is not as it was"
    finally:
        process.kill()
        process.wait()
        os.close(master)
    assert cli.left() == []


def _expect(descriptor: int, wanted: bytes) -> None:
    seen, until = b"", time.monotonic() + 20
    while wanted not in seen:
        assert time.monotonic() < until, seen
        if select.select([descriptor], [], [], 0.1)[0]:
            seen += os.read(descriptor, 65536)


def test_a_terminal_can_be_asked_for_where_there_is_none(cli):
    done = cli.run("--tty", "--", "sh", "-c", "tty; echo err >&2")
    assert done.stdout == b"/dev/pts/0\r\nerr\r\n"
    assert cli.run("--no-tty", "--", "tty").stdout == b"not a tty\n"
