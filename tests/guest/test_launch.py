"""Starting a program both ways: in shared memory, and by a plain fork where that cannot be."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paddock.guest import launch
from tests.conftest import Need

pytestmark = pytest.mark.timeout(30)

SOURCES = str(Path(launch.__file__).parents[2])
# In a process of its own: spawning changes limits and takes over signals.
PRELUDE = f"""
import json, os, signal, sys
sys.path.insert(0, {SOURCES!r})
from paddock.guest import environment, launch, spawn, syscalls
from paddock.guest.errors import GuestError
from paddock.guest.users import Account, ROOT
launcher = launch.Launcher(by_fork=BY_FORK)
spawner = spawn.Spawner(launcher=launcher)
def run(argv, account=ROOT, cwd=b"/", **options):
    env = environment.pack(environment.basic(account, "sbx"))
    spawned = spawner.spawn(spawn.Command([a.encode() for a in argv], env, cwd, account, **options))
    os.set_blocking(spawned.stdout, True)
    out = b"".join(iter(lambda: os.read(spawned.stdout, 65536), b""))
    status = os.waitpid(spawned.pid, 0)[1]
    os.close(spawned.stdout); os.close(spawned.stderr)
    return out.decode(), os.waitstatus_to_exitcode(status)

import ctypes, struct, time
KILL, NANOSLEEP = (62, 35) if os.uname().machine == "x86_64" else (129, 101)
number = syscalls.NUMBER
TO_ITSELF = 0  # its process group, which is its own after setsid
program = ctypes.create_string_buffer(b"/bin/true")
nothing = (ctypes.c_char_p * 1)(None)
def start(*steps, path=program):
    execve = (number["execve"], *map(ctypes.addressof, (path, nothing, nothing)))
    return launcher.launch([(number["setsid"],), *steps, execve], exposed=True)
def has_children():
    try: os.waitpid(-1, os.WNOHANG)
    except ChildProcessError: return False
    return True
"""


def _script(by_fork: bool, code: str) -> Any:
    prelude = PRELUDE.replace("BY_FORK", str(by_fork))
    result = subprocess.run(
        [sys.executable, "-c", prelude + code], capture_output=True, check=False, timeout=20
    )
    assert result.returncode == 0, result.stderr.decode()
    return json.loads(result.stdout)


@pytest.fixture(params=[False, True], ids=["shared-memory", "fork"])
def by_fork(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.usefixtures("as_root")
def test_a_program_starts_with_its_user_groups_directory_and_session(by_fork: bool) -> None:
    found = _script(
        by_fork,
        """
account = Account("someone", 1234, 1235, "/tmp", "/bin/sh", (1235, 1236))
script = "id -u; id -g; id -G; pwd; cut -d' ' -f6 /proc/$$/stat; echo $$"
print(json.dumps(run(["sh", "-c", script], account, b"/tmp")))
""",
    )
    lines = found[0].split("\n")
    assert lines[:4] == ["1234", "1235", "1235 1236", "/tmp"]
    assert lines[4] == lines[5]
    assert found[1] == 0


@pytest.mark.parametrize("times", [200, pytest.param(1000, marks=pytest.mark.soak)])
@pytest.mark.usefixtures("as_root")
def test_many_starts_leak_nothing(by_fork: bool, times: int) -> None:
    found = _script(
        by_fork,
        f"""
run(["true"])
before = len(os.listdir("/proc/self/fd"))
codes = {{run(["true"])[1] for _ in range({times})}}
print(json.dumps([sorted(codes), len(os.listdir("/proc/self/fd")) - before]))
""",
    )
    assert found == [[0], 0]


@pytest.mark.usefixtures("as_root")
def test_a_failed_start_says_why_and_leaves_nothing(by_fork: bool, tmp_path: Path) -> None:
    program = tmp_path / "noexec"
    program.write_bytes(b"not a program")
    program.chmod(0o755)
    found = _script(
        by_fork,
        f"""
before = len(os.listdir("/proc/self/fd"))
said = []
for argv in ([{str(program)!r}], ["no-such"], ["/etc/passwd"]):
    try: run(argv)
    except GuestError as error: said.append([error.code, error.message])
try: os.waitpid(-1, os.WNOHANG); children = True
except ChildProcessError: children = False
print(json.dumps([said, len(os.listdir("/proc/self/fd")) - before, children]))
""",
    )
    said, leaked, children = found
    assert [code for code, _ in said] == ["invalid_argument"] * 3
    assert "exec format error" in said[0][1]
    assert (leaked, children) == (0, False)


@pytest.mark.usefixtures("as_root")
def test_a_signal_during_the_start_is_the_parents_alone(by_fork: bool) -> None:
    found = _script(
        by_fork,
        """
count = 0
def handler(*_):
    global count
    count += 1
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
codes = {run(["true"])[1] for _ in range(300)}
signal.setitimer(signal.ITIMER_REAL, 0)
print(json.dumps([sorted(codes), count > 10]))
""",
    )
    assert found == [[0], True]


def test_the_first_call_that_fails_is_named(by_fork: bool) -> None:
    found = _script(
        by_fork,
        """
calls = [(number["setsid"],), (number["dup3"], 9999, 1, 0), (number["setsid"],)]
try: launcher.launch(calls)
except launch.LaunchFailed as error: print(json.dumps([error.index, error.errno]))
""",
    )
    assert found == [1, 9]


@pytest.mark.parametrize("times", [1, 50])
def test_a_child_that_is_stopped_before_its_program_is_set_going(by_fork: bool, times: int) -> None:
    found = _script(
        by_fork,
        f"""
pid = start(*[(KILL, TO_ITSELF, signal.SIGSTOP)] * {times})
print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
""",
    )
    assert found == 0


def test_a_stopped_child_that_then_fails_says_why(by_fork: bool) -> None:
    found = _script(
        by_fork,
        """
stop = (KILL, TO_ITSELF, signal.SIGSTOP)
try: start(stop, path=ctypes.create_string_buffer(b"/no/such"))
except launch.LaunchFailed as error: print(json.dumps([error.index, error.errno, has_children()]))
""",
    )
    assert found == [2, 2, False]


def test_a_child_that_cannot_be_set_going_is_given_up_soon(by_fork: bool) -> None:
    found = _script(
        by_fork,
        """
a_minute = ctypes.create_string_buffer(struct.pack("2q", 60, 0), 16)
held_up = 0
for _ in range(2):
    try: start((NANOSLEEP, ctypes.addressof(a_minute), 0))
    except launch.LaunchHeldUp: held_up += 1
left = has_children()
pid = start()
print(json.dumps([held_up, left, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]))
""",
    )
    # The script may take 20 s, far less than the minute.
    assert found == [2, False, 0]


def test_a_child_that_is_killed_on_its_way_has_ended_by_the_signal(by_fork: bool) -> None:
    found = _script(
        by_fork,
        """
pid = start((KILL, TO_ITSELF, signal.SIGKILL))
print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
""",
    )
    assert found == -9


@pytest.mark.usefixtures("as_root")
def test_nobody_can_speak_to_the_guest_through_a_child_that_is_on_its_way(by_fork: bool) -> None:
    """What the guest does at a signal, the child must not do: it has the guest's memory."""
    found = _script(
        by_fork,
        """
heard = []
wakeup, other = os.pipe2(os.O_NONBLOCK)
for name in ("SIGTERM", "SIGINT", "SIGCHLD", "SIGUSR1"):
    signal.signal(signal.Signals[name], lambda number, _: heard.append(number))
signal.set_wakeup_fd(other)
class Interrupted(launch.Launcher):
    def launch(self, calls, **options):
        calls = [*calls[:-1], (KILL, TO_ITSELF, self.number), calls[-1]]
        return super().launch(calls, **options)
account = Account("someone", 1234, 1235, "/tmp", "/bin/sh", (1235,))
spawner = spawn.Spawner(launcher=Interrupted(by_fork=BY_FORK))
codes = []
for name in ("SIGTERM", "SIGINT", "SIGUSR1", "SIGQUIT", "SIGALRM"):
    spawner._launcher.number = signal.Signals[name]
    codes.append(run(["true"], account)[1])
print(json.dumps([codes, [n for n in heard if n != signal.SIGCHLD]]))
""".replace("BY_FORK", str(by_fork)),
    )
    assert found == [[-15, -2, -10, -3, -14], []]


WALK = """
.intel_syntax noprefix
        push rbx; mov rbx, rdi; mov rdi, rdx; mov rdx, rcx; xor r10d, r10d; xor r8d, r8d
        mov eax, 56; syscall; test rax, rax; jz call; pop rbx; ret
call:   mov rax, [rbx]; mov rdi, [rbx+8]; mov rsi, [rbx+16]; mov rdx, [rbx+24]
        mov r10, [rbx+32]; mov r8, [rbx+40]; mov r9, [rbx+48]; syscall
        mov [rbx+56], rax; add rbx, 64; test rax, rax; jns call
        mov edi, 127; mov eax, 60; syscall
"""


def test_the_machine_code_is_what_the_assembler_makes_of_its_source(
    tmp_path: Path, need: Need
) -> None:
    if (
        shutil.which("as") is None
        or shutil.which("objcopy") is None
        or os.uname().machine != "x86_64"
    ):
        need("an x86-64 assembler", "as and objcopy are part of binutils")
    (tmp_path / "walk.s").write_text(WALK)
    subprocess.run(["as", "walk.s", "-o", "walk.o"], cwd=tmp_path, check=True)
    command = ["objcopy", "-O", "binary", "-j", ".text", "walk.o", "walk.bin"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert (tmp_path / "walk.bin").read_bytes() == launch._WALK_X86_64


def test_sharing_memory_works_on_this_machine() -> None:
    """Otherwise the tests above would have run the same thing twice."""
    assert _script(False, "print(json.dumps(launcher.shares_memory))") is True
    assert _script(True, "print(json.dumps(launcher.shares_memory))") is False
