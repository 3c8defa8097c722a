"""A child process that makes a given list of system calls, the last of which is execve.

posix_spawn would do, but it can neither change the user nor make the child a subreaper; and a fork
of a Python process copies and faults in hundreds of pages for a child that lives half a
millisecond: three times the cost of the program start itself. So the child is made as posix_spawn
makes it, sharing the parent's memory while the parent waits, and all it does there is to walk
through a table of system calls. That walk is 84 bytes of machine code. Where these cannot be used
(another architecture, no executable memory) a plain fork does the same calls, only slower.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from typing import NoReturn

from .rescue import Rescue

# PyDLL keeps the interpreter lock: the child of a fork must return holding it.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.syscall.restype = ctypes.c_long

# start:  push rbx; mov rbx, rdi; mov rdi, rdx; mov rdx, rcx; xor r10d, r10d; xor r8d, r8d
#         mov eax, SYS_clone; syscall; test rax, rax; jz call; pop rbx; ret
# call:   mov rax, [rbx]; mov rdi, [rbx+8]; mov rsi, [rbx+16]; mov rdx, [rbx+24]
#         mov r10, [rbx+32]; mov r8, [rbx+40]; mov r9, [rbx+48]; syscall
#         mov [rbx+56], rax; add rbx, 64; test rax, rax; jns call
#         mov edi, 127; mov eax, SYS_exit; syscall
_WALK_X86_64 = bytes.fromhex(
    "534889fb4889d74889ca4531d24531c0b8380000000f054885c074025bc3"
    "488b03488b7b08488b7310488b53184c8b53204c8b43284c8b4b300f05"
    "488943384883c3404885c079d6bf7f000000b83c0000000f05"
)
_CLONE_VM, _CLONE_VFORK, _CLONE_PARENT_SETTID = 0x100, 0x4000, 0x100000
_FLAGS = _CLONE_VM | _CLONE_VFORK | _CLONE_PARENT_SETTID | signal.SIGCHLD
_ROW = struct.Struct("<8q")
_MOST_CALLS = 96
_STACK = 16384
_PROT_READ, _PROT_WRITE, _PROT_EXEC = 1, 2, 4
_MAP_PRIVATE_ANONYMOUS = 0x22
_SIG_SETMASK = 2
_PENDING = 1  # no system call fails with a positive number: this row was not reached


class LaunchFailed(Exception):
    """One of the calls failed, so nothing was started."""

    def __init__(self, index: int, number: int) -> None:
        super().__init__(f"call {index}: {os.strerror(number)}")
        self.index = index
        self.errno = number


class LaunchHeldUp(Exception):
    """Others kept the child from its program until it was killed."""


class Launcher:
    """Makes children. Holds the memory they share with us until they exec."""

    def __init__(self, *, by_fork: bool = False) -> None:
        self._walk = None if by_fork else _load_walk()
        self._table = ctypes.create_string_buffer(_ROW.size * _MOST_CALLS)
        self._stack = ctypes.create_string_buffer(_STACK)
        self._stack_top = (ctypes.addressof(self._stack) + _STACK) & ~15
        self._all_signals = ctypes.create_string_buffer(b"\xff" * 128, 128)
        self._old_signals = ctypes.create_string_buffer(128)
        self._rescue = Rescue()

    @property
    def shares_memory(self) -> bool:
        return self._walk is not None

    def launch(self, calls: list[tuple[int, ...]], *, exposed: bool = False) -> int:
        """The pid of a child in which all the calls have succeeded, or that was killed on its way.

        We wait for it; one that is `exposed` becomes another user, whose other programs can stop
        it before its last call. Then it is helped, and LaunchHeldUp if that is no use.
        """
        # A signal handler in the child would run in our memory.
        _libc.sigprocmask(_SIG_SETMASK, self._all_signals, self._old_signals)
        try:
            if exposed:
                self._rescue.stand_by()
            try:
                pid, failure = self._by_fork(calls) if self._walk is None else self._by_walk(calls)
            finally:
                given_up = exposed and self._rescue.stand_down()
        finally:
            _libc.sigprocmask(_SIG_SETMASK, self._old_signals, None)
        if failure or given_up:
            os.waitpid(pid, 0)  # it is past the point where it could be stopped
            raise failure or LaunchHeldUp
        return pid

    def _by_walk(self, calls: list[tuple[int, ...]]) -> tuple[int, LaunchFailed | None]:
        assert self._walk is not None
        for index, call in enumerate(calls):
            row = call + (0,) * (7 - len(call))
            _ROW.pack_into(self._table, index * _ROW.size, *row, _PENDING)
        pid_address = ctypes.addressof(self._rescue.pid)
        pid = int(self._walk(self._table, self._stack_top, _FLAGS, pid_address))
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        for index in range(len(calls)):
            result = _ROW.unpack_from(self._table, index * _ROW.size)[7]
            if result < 0:
                return pid, LaunchFailed(index, -result)
        return pid, None

    def _by_fork(self, calls: list[tuple[int, ...]]) -> tuple[int, LaunchFailed | None]:
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            pid = int(_libc.fork())
            if pid == 0:
                _walk_in_python(calls, write)
            if pid < 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            self._rescue.pid.value = pid
            os.close(write)
            write = -1
            said = b"".join(iter(lambda: os.read(read, 32), b""))
        finally:
            os.close(read)
            if write >= 0:
                os.close(write)
        return pid, LaunchFailed(*(int(part) for part in said.split())) if said else None


def _walk_in_python(calls: list[tuple[int, ...]], report: int) -> NoReturn:
    try:
        for index, call in enumerate(calls):
            arguments = [ctypes.c_long(argument) for argument in call[1:]]
            if _libc.syscall(ctypes.c_long(call[0]), *arguments) < 0:
                os.write(report, b"%d %d" % (index, ctypes.get_errno()))
                break
    finally:
        os._exit(127)


def _load_walk() -> ctypes._FuncPointer | None:
    if os.uname().machine != "x86_64":
        return None
    prot = _PROT_READ | _PROT_WRITE
    address = _libc.mmap(None, 4096, prot, _MAP_PRIVATE_ANONYMOUS, -1, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    ctypes.memmove(address, _WALK_X86_64, len(_WALK_X86_64))
    if _libc.mprotect(address, 4096, _PROT_READ | _PROT_EXEC) != 0:
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_long
    # Without the interpreter lock, so that there can be a rescue while we wait.
    return ctypes.CFUNCTYPE(number, pointer, pointer, number, pointer)(address)
