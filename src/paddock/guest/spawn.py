"""Starting a program: its streams, its user, its limits, and then itself."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
import termios
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from . import executable, syscalls
from .environment import decode
from .errors import GuestError, from_os_error, invalid, no_program
from .launch import Launcher, LaunchFailed, LaunchHeldUp
from .syscalls import NUMBER
from .terminal import open_terminal
from .users import Account

_OOM_SCORE_ADJ = b"500"
_CLOSE_RANGE_CLOEXEC = 4
_SIG_SETMASK = 2
_UNCATCHABLE = (9, 19)
_PREPARE, _USER, _DIRECTORY, _EXEC = range(4)

Step = tuple[int, tuple[int, ...]]
"""What a system call is for, and the call itself: its number and arguments."""


@dataclass(frozen=True)
class Command:
    """A program and all that it starts with."""

    argv: list[bytes]
    env: dict[bytes, bytes]
    cwd: bytes
    account: Account
    stdin: bool = False
    """A pipe to write to; otherwise /dev/null."""
    terminal: tuple[int, int] | None = None
    """Columns and rows: one terminal takes the place of the three streams."""


@dataclass
class Spawned:
    """A running program and our ends of its streams; what is not there is -1."""

    pid: int
    stdin: int = -1
    stdout: int = -1
    stderr: int = -1
    terminal: int = -1


@dataclass
class _Ends:
    """The descriptors of one spawn, so that all are closed whatever happens."""

    ours: dict[str, int] = field(default_factory=dict)
    theirs: list[int] = field(default_factory=list)

    def close_theirs(self) -> None:
        for fd in self.theirs:
            os.close(fd)
        self.theirs = []

    def close_ours(self) -> None:
        for fd in self.ours.values():
            os.close(fd)
        self.ours = {}


class Spawner:
    """Starts programs; holds what is the same for all of them."""

    def __init__(self, oom_score_fd: int | None = None, launcher: Launcher | None = None) -> None:
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._uid = os.geteuid()
        self._launcher = launcher or Launcher(by_fork=syscalls.changed_ids_allow_inspection())
        self._oom_score = _OomScore(oom_score_fd)
        files = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise_file_limit(files)
        self._files = files

    @cached_property
    def _preparation(self) -> _Preparation:
        """Made for the first command, when the guest's own signal handlers are in place."""
        return _Preparation(self._files)

    def spawn(self, command: Command) -> Spawned:
        """Start it. When this returns the program itself runs; every failure is a GuestError."""
        if self._uid not in (0, command.account.uid):
            raise GuestError(
                "permission_denied",
                f"this guest runs as uid {self._uid} and cannot become {command.account.name}",
            )
        if not command.argv[0] or any(b"\0" in argument for argument in command.argv):
            raise invalid("a command needs a name, and no argument may hold a NUL byte")
        path = executable.find(command.argv[0], command.env.get(b"PATH", b""), command.cwd)
        ends = _Ends()
        try:
            pid = self._launch(command, path, self._open_streams(command, ends))
        except GuestError:
            ends.close_ours()
            raise
        except OSError as error:
            ends.close_ours()
            raise from_os_error(error, f"cannot start {decode(command.argv[0])}") from error
        finally:
            ends.close_theirs()
        return Spawned(pid, **ends.ours)

    def _open_streams(self, command: Command, ends: _Ends) -> tuple[int, int, int]:
        if command.terminal is not None:
            master, slave = open_terminal(command.terminal)
            ends.ours["terminal"] = master
            ends.theirs.append(slave)
            self._give(slave, command.account)
            return slave, slave, slave
        stdin = self._null
        if command.stdin:
            stdin, ends.ours["stdin"] = os.pipe2(os.O_CLOEXEC)
            ends.theirs.append(stdin)
            os.set_blocking(ends.ours["stdin"], False)
        return (
            stdin,
            self._open_output("stdout", command, ends),
            self._open_output("stderr", command, ends),
        )

    def _open_output(self, name: str, command: Command, ends: _Ends) -> int:
        ends.ours[name], theirs = os.pipe2(os.O_CLOEXEC)
        ends.theirs.append(theirs)
        os.set_blocking(ends.ours[name], False)
        # Without this the user could not open /dev/stdout, which is the pipe by name.
        self._give(theirs, command.account)
        return theirs

    def _give(self, fd: int, account: Account) -> None:
        if self._uid == 0 and account.uid != 0:
            with suppress(PermissionError):  # gVisor's pipes cannot be given away
                os.fchown(fd, account.uid, account.gid)

    def _launch(self, command: Command, path: bytes, streams: tuple[int, int, int]) -> int:
        # The arrays must live until the child has read them, which it has when launch() returns.
        argv = _array(command.argv)
        env = _array([name + b"=" + value for name, value in command.env.items()])
        names = (ctypes.c_char_p * 2)(path, command.cwd)
        groups = (ctypes.c_uint32 * len(command.account.groups))(*command.account.groups)
        path_at, cwd_at = struct.unpack("2q", names)
        steps = [
            *self._preparation.steps(streams, command.terminal is not None),
            *(_become(command.account, groups) if self._uid == 0 else ()),
            (_DIRECTORY, (NUMBER["chdir"], cwd_at)),
        ]
        uid = command.account.uid
        if self._uid == 0:
            # As late as can be: from here on the user's other programs can signal this one.
            steps.append((_USER, (NUMBER["setresuid"], uid, uid, uid)))
        steps += self._preparation.last_steps()
        execve = (NUMBER["execve"], path_at, ctypes.addressof(argv), ctypes.addressof(env))
        steps.append((_EXEC, execve))
        self._oom_score.raise_for_child()
        try:
            return self._launcher.launch([call for _, call in steps], exposed=uid != self._uid)
        except LaunchFailed as error:
            raise _failed(command, path, steps[error.index][0], error.errno) from None
        except LaunchHeldUp:
            raise _held_up(command) from None
        finally:
            self._oom_score.restore()


class _Preparation:
    """The calls that do not depend on the command, with the memory they point to."""

    def __init__(self, files: tuple[int, int]) -> None:
        self._default_action = ctypes.create_string_buffer(32)  # SIG_DFL, no flags, empty mask
        self._no_signals = ctypes.create_string_buffer(8)
        self._files = ctypes.create_string_buffer(
            struct.pack("2Q", *(limit % 2**64 for limit in files)), 16
        )
        default = ctypes.addressof(self._default_action)
        self._first: list[Step] = [
            (_PREPARE, (NUMBER["setsid"],)),
            *_as_subreaper(),
            *((_PREPARE, (NUMBER["rt_sigaction"], n, default, 0, 8)) for n in _changed_signals()),
            (
                _PREPARE,
                (NUMBER["prlimit64"], 0, resource.RLIMIT_NOFILE, ctypes.addressof(self._files), 0),
            ),
        ]
        if _has_close_range():
            call = (NUMBER["close_range"], 3, 2**31 - 1, _CLOSE_RANGE_CLOEXEC)
            self._first.append((_PREPARE, call))
        # Not before: a core dump of a child that shares our memory would take us with it, and
        # setresuid may have made it possible.
        empty = ctypes.addressof(self._no_signals)
        self._last: list[Step] = [
            (_PREPARE, (NUMBER["prctl"], syscalls.PR_SET_DUMPABLE, 0)),
            (_PREPARE, (NUMBER["rt_sigprocmask"], _SIG_SETMASK, empty, 0, 8)),
        ]

    def steps(self, streams: tuple[int, int, int], has_terminal: bool) -> list[Step]:
        steps = list(self._first)
        for target, fd in enumerate(streams):
            steps.append((_PREPARE, (NUMBER["dup3"], fd, target, 0)))
        if has_terminal:
            steps.append((_PREPARE, (NUMBER["ioctl"], 0, termios.TIOCSCTTY, 0)))
        return steps

    def last_steps(self) -> list[Step]:
        return self._last


class _OomScore:
    """The guest's own score, raised while it starts a command, which inherits it.

    It makes the kernel prefer the command to the guest when memory is short. It cannot be set in
    the child: a joined guest's entries in /proc are closed to itself. Does nothing where it may
    not be written.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = -1
        try:
            if fd is None:
                fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
            self._own = b"%d" % int(os.pread(fd, 16, 0))
            os.pwrite(fd, self._own, 0)
            self._fd = fd
        except OSError:
            pass

    def raise_for_child(self) -> None:
        if self._fd >= 0:
            os.pwrite(self._fd, _OOM_SCORE_ADJ, 0)

    def restore(self) -> None:
        if self._fd >= 0:
            os.pwrite(self._fd, self._own, 0)


def raise_file_limit(limits: tuple[int, int]) -> None:
    """As many files as allowed: every stream of every client is one."""
    soft, hard = limits
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _become(account: Account, groups: ctypes.Array[ctypes.c_uint32]) -> list[Step]:
    gid = account.gid
    steps: list[Step] = [
        (_USER, (NUMBER["setgroups"], len(groups), ctypes.addressof(groups))),
        (_USER, (NUMBER["setresgid"], gid, gid, gid)),
    ]
    if syscalls.has_setfsuid():  # the working directory is entered as the user
        steps.append((_USER, (NUMBER["setfsuid"], account.uid)))
    return steps


def _as_subreaper() -> list[Step]:
    """What its descendants leave behind stays below the command, where the kernel can do that."""
    if not syscalls.become_subreaper():
        return []
    return [(_PREPARE, (NUMBER["prctl"], syscalls.PR_SET_CHILD_SUBREAPER, 1))]


def _failed(command: Command, path: bytes, step: int, number: int) -> GuestError:
    reason = os.strerror(number).lower()
    if step == _EXEC and number == errno.ENOENT:
        return no_program(f"cannot execute {decode(path)}: its interpreter does not exist")
    if step == _EXEC:
        return no_program(f"cannot execute {decode(path)}: {reason}")
    if step == _DIRECTORY:
        return invalid(f"working directory {decode(command.cwd)} cannot be entered: {reason}")
    what = f"become user {command.account.name}" if step == _USER else "prepare the command"
    return GuestError("internal", f"cannot {what}: {reason}")


def _held_up(command: Command) -> GuestError:
    return GuestError(
        "failed_precondition",
        f"cannot start {decode(command.argv[0])}: other processes of {command.account.name} kept "
        "stopping it until it was given up; end them and try again",
    )


def _array(items: list[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(items) + 1))(*items, None)


def _changed_signals() -> list[int]:
    """Which are ignored or handled, by the kernel's word: Python does not speak of 32 and 33.

    execve resets what is handled but leaves what is ignored, as Python does with SIGPIPE. And
    until execve a handler of ours would run in the child, and tell us of a signal we never got.
    """
    action = ctypes.create_string_buffer(32)
    found = []
    for number in range(1, 65):
        if number not in _UNCATCHABLE:
            syscalls.call("rt_sigaction", number, None, action, 8)
            if any(action.raw[:8]):
                found.append(number)
    return found


def _has_close_range() -> bool:
    """Asked with an empty range; without it what the guest itself opened is closed all the same."""
    libc = ctypes.PyDLL(None)
    number = NUMBER["close_range"]
    return bool(libc.syscall(number, 2**31 - 1, 2**31 - 1, _CLOSE_RANGE_CLOEXEC) == 0)
