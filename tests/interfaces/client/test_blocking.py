"""Sandbox, the same without an event loop."""

import inspect
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import paddock
from paddock import AsyncSandbox, CommandFailed, NotFound, Sandbox
from tests.repository.checkout import ROOT


@pytest.fixture
def box(server):
    with Sandbox.create("plain", server=server) as made:
        yield made


def test_it_is_generated_and_fresh():
    done = subprocess.run(
        [sys.executable, "scripts/blocking.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_has_every_method_with_the_same_parameters():
    for name, method in inspect.getmembers(AsyncSandbox, inspect.isfunction):
        if not name.startswith("_"):
            ours = inspect.signature(getattr(Sandbox, name)).parameters
            assert list(ours) == list(inspect.signature(method).parameters)


def test_a_whole_life(server):
    with Sandbox.create("plain", name="sync-one", labels={"of": "sync"}, server=server) as box:
        assert [each.id for each in Sandbox.list(labels={"of": "sync"}, server=server)] == [box.id]
        result = box.commands.run("echo out; echo err >&2; exit 4")
        assert (result.exit_code, result.stdout, result.stderr) == (4, "out\n", "err\n")
        with pytest.raises(CommandFailed):
            box.commands.run("exit 4", check=True)
        file = box.commands.run("pwd").stdout.strip() + "/x"
        box.files.write(file, b"bytes")
        assert box.files.read_bytes(file) == b"bytes"
        assert b"".join(box.files.read_stream(file)) == b"bytes"
        with box.fork() as copy:
            assert isinstance(copy, Sandbox)
            assert copy.commands.run("cat x").stdout == "bytes"
        assert [event.kind for event in box.events()][:1] == ["sandbox.creating"]
        same = Sandbox.connect("sync-one", server=server)
        assert repr(same) == f"<Sandbox sync-one {box.id}>"
    with pytest.raises(NotFound):
        Sandbox.connect("sync-one", server=server)


def test_a_command_is_iterated_over_and_fed(box):
    command = box.commands.start(["cat"], keep_stdin_open=True)
    command.send_input("one\n")
    for piece in command:
        assert piece.text == "one\n"
        command.close_input()
    assert command.wait().exit_code == 0
    started = box.commands.run("sleep 100", background=True)
    started.kill(0)
    assert started.wait().exit_code != 0


def test_callbacks_run_in_the_thread_that_waits_and_may_use_the_sandbox(box):
    heard = []

    def hear(text):
        heard.append((threading.current_thread(), text, box.commands.run("echo nested").stdout))

    box.commands.run("echo one", on_stdout=hear)
    assert heard == [(threading.current_thread(), "one\n", "nested\n")]


def test_a_callback_that_fails_ends_the_command_with_its_error(box):
    def refuse(_text):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        box.commands.run("echo one; sleep 100", on_stdout=refuse)
    assert not any(each.is_running for each in box.commands.list())


def test_many_threads_share_it(box):
    said: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: said.append(box.commands.run(f"echo {n}").stdout))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(said) == [f"{n}\n" for n in range(8)]


def test_ctrl_c_ends_the_command(box):
    main = threading.main_thread()

    def interrupt_when_running() -> None:
        while not any(each.is_running for each in box.commands.list()):
            time.sleep(0.02)
        signal.pthread_kill(main.ident, signal.SIGINT)

    user = threading.Thread(target=interrupt_when_running)
    user.start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            box.commands.run("sleep 100")
    finally:
        signal.signal(signal.SIGINT, before)
        user.join()
    assert time.monotonic() - began < 20
    assert not any(each.is_running for each in box.commands.list())


def test_importing_paddock_is_quick_and_complete():
    script = "import sys, paddock; print('aiohttp' in sys.modules); paddock.Sandbox"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("False\n", 0)
    assert all(getattr(paddock, name) for name in paddock.__all__)
    assert not hasattr(paddock, "Nothing")


@pytest.mark.parametrize(
    "use",
    [
        "with Sandbox.create('plain') as box: print(box.commands.run('echo hi').stdout, end='')",
        "box = Sandbox.create('plain'); print(box.commands.run('echo hi').stdout, end='')",
    ],
    ids=["closing", "leaving"],
)
def test_a_script_ends_without_a_word(running, use):
    """Also one that closes nothing: what it left to be done is done, so no record remains."""
    script = f"from paddock import Sandbox\n{use}\n"
    place = {"PADDOCK_URL": running.url, "PADDOCK_TOKEN": running.token}
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script],
        env={**os.environ, **place},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("hi\n", "", 0)
    for left in Sandbox.list(server=running.server()):
        box = Sandbox.connect(left.id, server=running.server())
        assert box.commands.list() == []
        box.kill()
