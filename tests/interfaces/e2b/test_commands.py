"""Commands and terminals by the unmodified SDK."""

import threading
import time

import pytest
from e2b import (
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    TimeoutException,
)
from e2b.sandbox.commands.command_handle import PtySize

pytestmark = [pytest.mark.timeout(60)]


def test_output_streams_and_ends_are_told_apart(box):
    heard: list[tuple[str, str]] = []
    done = box.commands.run(
        "echo out; echo err >&2",
        on_stdout=lambda text: heard.append(("out", text)),
        on_stderr=lambda text: heard.append(("err", text)),
    )
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 0)
    assert sorted(heard) == [("err", "err\n"), ("out", "out\n")]


def test_a_failing_command_raises_with_all_it_said(box):
    with pytest.raises(CommandExitException) as caught:
        box.commands.run("echo so far; echo why >&2; exit 3")
    assert (caught.value.exit_code, caught.value.stdout) == (3, "so far\n")
    assert caught.value.stderr == "why\n"


def test_users_directories_and_variables_are_as_asked(box):
    done = box.commands.run("id -un; pwd; echo $A", user="root", cwd="/etc", envs={"A": "1"})
    assert done.stdout == "root\n/etc\n1\n"
    with pytest.raises(InvalidArgumentException):
        box.commands.run("true", cwd="/nowhere")


def test_a_command_in_the_background_goes_on_and_is_found_again(box):
    handle = box.commands.run(
        "for i in 1 2 3; do read x; echo got $x; done", background=True, stdin=True
    )
    box.commands.send_stdin(handle.pid, "one\n")
    assert handle.pid in {each.pid for each in box.commands.list()}
    again = box.commands.connect(handle.pid)
    box.commands.send_stdin(handle.pid, "two\n")
    box.commands.send_stdin(handle.pid, "three\n")
    done = again.wait()
    assert done.exit_code == 0
    assert done.stdout.endswith("got three\n")
    assert handle.wait().stdout == "got one\ngot two\ngot three\n"


def test_input_can_be_closed(box):
    handle = box.commands.run("cat", background=True, stdin=True)
    box.commands.send_stdin(handle.pid, "all")
    box.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "all"


def test_a_client_that_disconnects_leaves_the_command_running(box):
    handle = box.commands.run("sleep 30", background=True)
    handle.disconnect()
    assert handle.pid in {each.pid for each in box.commands.list()}
    assert box.commands.kill(handle.pid) is True
    deadline = time.monotonic() + 5
    while box.commands.kill(handle.pid):
        assert time.monotonic() < deadline, "it is not reaped"
    with pytest.raises(NotFoundException):
        box.commands.connect(2_000_000)


def test_a_killed_command_says_so(box):
    handle = box.commands.run("sleep 30", background=True)
    assert handle.kill() is True
    with pytest.raises(CommandExitException) as caught:
        handle.wait()
    assert "killed" in (caught.value.error or "")


def test_a_deadline_ends_the_command(box):
    began = time.monotonic()
    with pytest.raises(TimeoutException):
        box.commands.run("echo begun; sleep 30", timeout=1)
    assert time.monotonic() - began < 25
    while [each for each in box.commands.list() if "sleep 30" in " ".join(each.args)]:
        assert time.monotonic() - began < 25, "it goes on"
        time.sleep(0.05)


def test_much_output_comes_whole(box):
    done = box.commands.run("seq 1 200000", timeout=30)
    assert len(done.stdout.splitlines()) == 200000
    assert done.stdout.endswith("200000\n")


def test_a_terminal_is_one(box):
    seen = ""
    handle = box.pty.create(PtySize(rows=33, cols=101), timeout=30)
    box.pty.send_stdin(handle.pid, b"stty size; tty | cut -c1-8\n")
    for _, _, piece in handle:
        seen += (piece or b"").decode()
        if "33 101\r\n/dev/pts" in seen:
            break
    box.pty.resize(handle.pid, PtySize(rows=40, cols=120))
    box.pty.send_stdin(handle.pid, b"stty size; exit\n")
    rest = bytearray()
    handle.wait(on_pty=rest.extend)
    assert b"40 120" in rest


def test_a_terminal_can_be_killed(box):
    handle = box.pty.create(PtySize(rows=24, cols=80))
    assert box.pty.kill(handle.pid) is True
    with pytest.raises(CommandExitException):
        handle.wait()


def test_many_at_once(box):
    results: dict[int, str] = {}

    def one(number: int) -> None:
        results[number] = box.commands.run(f"sleep 0.2; echo {number}").stdout

    threads = [threading.Thread(target=one, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == {number: f"{number}\n" for number in range(10)}


def test_input_is_streamed(box):
    behind = box.commands.run("cat", background=True, stdin=True)
    box.commands.stream_input(behind.pid, (piece for piece in ("one ", b"two ", "three")))
    box.commands.close_stdin(behind.pid)
    assert behind.wait().stdout == "one two three"
    terminal = box.pty.create(PtySize(rows=20, cols=80))
    box.pty.stream_input(terminal.pid, [b"echo st$((1))reamed\n", b"exit\n"])
    seen = bytearray()
    terminal.wait(on_pty=seen.extend)
    assert b"st1reamed" in seen
    with pytest.raises(NotFoundException):
        box.commands.stream_input(999_999, ["nobody"])
