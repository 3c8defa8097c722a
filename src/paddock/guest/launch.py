"""A child process that makes a given list of system calls, the last of which is execve.

posix_spawn would do, but it can neither change the user nor make the child a subreaper; and a fork
of a Python process copies and faults in hundreds of pages for a child that lives half a
millisecond: three times the cost of the program start itself. So the child is made as posix_spawn
makes it, sharing the parent's memory while the parent waits, and all it does there is to walk
through a table of system calls. That walk is 83 bytes of machine code. Where these cannot be used
(another architecture, no executable memory) a plain fork does the same calls, only slower.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import NoReturn

# PyDLL keeps the interpreter lock: the child of a fork must return holding it.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.syscall.restype = ctypes.c_long

_NAMES = (
    "setsid dup3 ioctl rt_sigaction rt_sigprocmask prlimit64 prctl setgroups setresgid setfsuid "
    "setresuid chdir close_range execve"
).split()
_X86_64 = (112, 292, 16, 13, 14, 302, 157, 116, 119, 122, 117, 80, 436, 59)
_GENERIC = (157, 24, 29, 134, 135, 261, 167, 159, 149, 151, 147, 49, 436, 221)
NUMBER = dict(zip(_NAMES, _X86_64 if os.uname().machine == "x86_64" else _GENERIC))

# start:  push rbx; mov rbx, rdi; mov rdi, rdx; xor edx, edx; xor r10d, r10d; xor r8d, r8d
#         mov eax, SYS_clone; syscall; test rax, rax; jz call; pop rbx; ret
# call:   mov rax, [rbx]; mov rdi, [rbx+8]; mov rsi, [rbx+16]; mov rdx, [rbx+24]
#         mov r10, [rbx+32]; mov r8, [rbx+40]; mov r9, [rbx+48]; syscall
#         mov [rbx+56], rax; add rbx, 64; test rax, rax; jns call
#         mov edi, 127; mov eax, SYS_exit; syscall
_WALK_X86_64 = bytes.fromhex(
    "534889fb4889d731d24531d24531c0b8380000000f054885c074025bc3"
    "488b03488b7b08488b7310488b53184c8b53204c8b43284c8b4b300f05"
    "488943384883c3404885c079d6bf7f000000b83c0000000f05"
)
_CLONE_VM_VFORK_SIGCHLD = 0x100 | 0x4000 | 17
_ROW = struct.Struct("<8q")
_MOST_CALLS = 48
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


class Launcher:
    """Makes children. Holds the memory they share with us until they exec."""

    def __init__(self, *, by_fork: bool = False) -> None:
        self._walk = None if by_fork else _load_walk()
        self._table = ctypes.create_string_buffer(_ROW.size * _MOST_CALLS)
        self._stack = ctypes.create_string_buffer(_STACK)
        self._stack_top = (ctypes.addressof(self._stack) + _STACK) & ~15
        self._all_signals = ctypes.create_string_buffer(b"\xff" * 128, 128)
        self._old_signals = ctypes.create_string_buffer(128)

    @property
    def shares_memory(self) -> bool:
        return self._walk is not None

    def launch(self, calls: list[tuple[int, ...]]) -> int:
        """The pid of a child in which all the calls have succeeded."""
        for index, call in enumerate(calls):
            row = call + (0,) * (7 - len(call))
            _ROW.pack_into(self._table, index * _ROW.size, *row, _PENDING)
        return self._launch_by_fork(calls) if self._walk is None else self._launch_shared(calls)

    def _launch_shared(self, calls: list[tuple[int, ...]]) -> int:
        assert self._walk is not None
        # A signal handler in the child would run in our memory.
        _libc.sigprocmask(_SIG_SETMASK, self._all_signals, self._old_signals)
        try:
            pid = self._walk(self._table, self._stack_top, _CLONE_VM_VFORK_SIGCHLD)
        finally:
            _libc.sigprocmask(_SIG_SETMASK, self._old_signals, None)
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        for index in range(len(calls)):
            result = _ROW.unpack_from(self._table, index * _ROW.size)[7]
            if result < 0:
                os.waitpid(pid, 0)
                raise LaunchFailed(index, -result)
        return int(pid)

    def _launch_by_fork(self, calls: list[tuple[int, ...]]) -> int:
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            pid = int(_libc.fork())
            if pid == 0:
                _walk_in_python(calls, write)
            os.close(write)
            write = -1
            failure = os.read(read, 32)
        finally:
            os.close(read)
            if write >= 0:
                os.close(write)
        if pid < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        if failure:
            os.waitpid(pid, 0)
            raise LaunchFailed(*(int(part) for part in failure.split()))
        return pid


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
    prototype = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)
    return prototype(address)
