"""A program that forks from the warm server behaves as one that starts cold."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness import fork_server
from tests.repository.checkout import ROOT

PROGRAM = (sys.executable, "-m", "tests.repository.forked_program")
COLD = {fork_server.COLD: "1"}


def start(*words: str, cold: bool = False, **options: Any) -> subprocess.Popen[bytes]:
    environment = options.pop("env", dict(os.environ))
    pipe = subprocess.PIPE
    streams = {"stdin": pipe, "stdout": pipe, "stderr": pipe}
    return subprocess.Popen(
        [*PROGRAM, *words],
        env={**environment, **COLD} if cold else environment,
        **{"cwd": ROOT, **streams, **options},
    )


def run(*words: str, given: bytes = b"", **options: Any) -> tuple[int, bytes, bytes]:
    with start(*words, **options) as process:
        out, err = process.communicate(given, timeout=20)
    return process.returncode, out, err


def describe(**options: Any) -> dict[str, Any]:
    code, out, err = run("describe", "ä", "\udcff", "", **options)
    assert (code, err or b"") == (0, b"")
    return json.loads(out)


@pytest.fixture(scope="module", autouse=True)
def _is_supported(need) -> None:
    if not fork_server._is_supported():
        need("a kernel with CONFIG_CHECKPOINT_RESTORE", "programs start cold without it")


@pytest.mark.parametrize("kind", ["plain", "session", "relative", "terminal"])
def test_a_program_sees_the_same(kind: str, monkeypatch) -> None:
    """Arguments, environment, directory, descriptors, streams, signals and parent."""
    options: dict[str, Any] = {}
    environment = {**os.environ, "TZ": "Asia/Tokyo", "ODD\udcff": "a=\udcfe\n"}
    if kind == "session":
        options["start_new_session"] = True
    if kind == "relative":
        monkeypatch.chdir(ROOT.parent)
        options["cwd"] = ROOT.name
    master, slave = pty.openpty()
    if kind == "terminal":
        options |= {"stdin": slave, "stderr": slave}
    seen = []
    for cold in (False, True):
        each = describe(cold=cold, env=environment, **options)
        each["environment"].pop(fork_server.COLD, None)
        each["environ"] = [line for line in each["environ"] if fork_server.COLD not in line]
        seen.append(each)
    os.close(master)
    os.close(slave)
    warm, cold_one = seen
    assert not cold_one.pop("warm")
    assert warm.pop("warm")
    assert warm == cold_one
    assert warm["parent"] == os.getpid()
    assert warm["terminals"] == [kind == "terminal", False, kind == "terminal"]
    assert warm["cmdline"].split("\0")[:3] == list(PROGRAM)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("copy_text",), 0),
        (("print_odd_names",), 0),
        (("fail",), 1),
        (("hook",), 1),
        (("exit_with", "None"), 0),
        (("exit_with", "7"), 7),
        (("exit_with", "257"), 1),
        (("exit_with", "-1"), 255),
        (("exit_with", "'a text'"), 1),
        (("exit_with", "['a', 'list']"), 1),
        (("finish",), 0),
        (("leave_a_cycle",), 0),
        (("interrupt_from_a_thread",), -signal.SIGINT),
        (("abort",), -signal.SIGABRT),
        (("spawn",), 0),
    ],
    ids=str,
)
def test_a_program_reads_writes_and_ends_the_same(words: tuple[str, ...], code: int) -> None:
    warm = run(*words, given=b"a\r\n\xff")
    assert warm == run(*words, given=b"a\r\n\xff", cold=True)
    assert warm[0] == code


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("action", ["write_much", "write_late"])
def test_a_pipe_without_a_reader_ends_the_program(action: str, cold: bool) -> None:
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = start(action, cold=cold, env=settings)
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    process.stdin.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(20) == {"write_much": 1, "write_late": 120}[action]
    assert b"BrokenPipeError: [Errno 32] Broken pipe" in said


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_program(number: signal.Signals) -> None:
    with start("wait", bufsize=0) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(20) == -number
        assert process.stderr
        assert process.stderr.read().endswith(
            b"KeyboardInterrupt\n" if number == signal.SIGINT else b""
        )


def test_an_interrupt_that_comes_early_is_not_lost() -> None:
    with start("wait") as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT


@pytest.mark.parametrize("lowest", [3, 200])
def test_a_descriptor_is_passed_on(lowest: int) -> None:
    reader, end = os.pipe()
    writer = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(end)
    with start("use_descriptor", str(writer), pass_fds=[writer]) as process:
        os.close(writer)
        assert process.wait(20) == 0
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"here", "no other process holds the pipe"
    assert run("use_descriptor", str(writer))[0] == 1


async def test_asyncio_starts_and_waits_for_a_program() -> None:
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "exit_with", "9", cwd=ROOT, stdout=subprocess.PIPE
    )
    assert await process.communicate() == (b"", None)
    assert process.returncode == 9


def test_what_the_server_cannot_reproduce_starts_cold(tmp_path: Path) -> None:
    plain = dict(os.environ)
    assert describe(env=plain)["warm"]
    assert not describe(env={**plain, "PYTHONUTF8": "1"})["warm"]
    assert not describe(preexec_fn=lambda: None)["warm"]
    assert not describe(umask=0o27)["warm"]
    assert not describe(env={**plain, "LARGE": "x" * 120_000, "LARGER": "x" * 120_000})["warm"]
    with pytest.raises(FileNotFoundError):
        describe(cwd=tmp_path / "absent")
    with pytest.raises(ValueError, match="null byte"):
        describe(env={**plain, "A": "\0"})


def test_a_server_that_ended_is_not_asked_again() -> None:
    server = fork_server.ForkServer()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server._control, server._owner = ours, os.getpid()
    theirs.close()
    with pytest.raises(OSError, match="ended unexpectedly"):
        server.start_program(b"{}", [0, 1, 2])
    assert server._control is None, "the next program starts another server"
