"""Start `python -m MODULE` in tests by forking a process that has imported Paddock already.

A cold `python -m paddock` spends 0.4 s on imports, and the suite starts about 900 of them.
`install()` makes `subprocess` (and asyncio, which uses it) fork these programs from a warm server.
The program still has its own process, argv, environment, directory and descriptors, and it is a
child of the test process: `wait`, `kill -9` and exit codes work as usual.

Programs that the server cannot reproduce start cold: another user, a `preexec_fn`, other `PYTHON…`
variables, interpreter options. `PADDOCK_TEST_COLD=1` in the environment starts everything cold.
"""

import atexit
import ctypes
import fcntl
import gc
import importlib
import inspect
import io
import json
import os
import pkgutil
import platform
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]
MODULES = ("paddock", "paddock.testing.models", "tests.")
"""Modules that fork. A trailing dot covers a package."""
PRELOADED = (
    "paddock.interfaces.cli",
    "paddock.interfaces.client",
    "paddock.wiring",
    "paddock.wiring.server",
    "paddock.wiring.listening",
    "paddock.adapters.providers.local.provider",
    "paddock.adapters.providers.docker.provider",
    "paddock.testing.models",
    "asyncpg",
    "uvloop",
    "sqlite3",
)
"""Imported before the first fork, for interfaces with all their submodules."""
COLD = "PADDOCK_TEST_COLD"

_CLONE_PARENT, _CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
_PR_SET_MM, _PR_SET_MM_MAP, _PR_GET_TID_ADDRESS = 35, 14, 40
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_LARGEST_REQUEST = 200_000
_MOST_DESCRIPTORS = 250

_LIBC = ctypes.PyDLL(None, use_errno=True)


class ForkServer:
    """The warm process as the test process sees it. It starts with the first program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._owner = 0
        self._settings: dict[str, str] = {}

    def settings(self) -> dict[str, str]:
        """Variables of the environment that the interpreter has already read."""
        return self._settings if self._is_ours() else _interpreter_settings(os.environ)

    def start_program(self, request: bytes, descriptors: Sequence[int]) -> int:
        """Return the pid of the new child."""
        with self._lock:
            control = self._connect()
            try:
                socket.send_fds(control, [request], descriptors)
                answer = control.recv(64)
            except OSError:
                answer = b""
            if not answer:
                control.close()
                self._control = None
                raise OSError("the fork server ended unexpectedly; its error is on stderr")
            return int(answer)

    def _is_ours(self) -> bool:
        # A forked test process must not share the server: its children would not be ours.
        return self._control is not None and self._owner == os.getpid()

    def _connect(self) -> socket.socket:
        if self._control is None or not self._is_ours():
            self._settings = _interpreter_settings(os.environ)
            self._control, self._owner = _start_server(), os.getpid()
        return self._control


def _start_server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST_REQUEST)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.fork_server", str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, COLD: "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    process.returncode = 0  # it ends when this process closes the socket; do not warn about it
    return ours


def install() -> None:
    """Make `subprocess.Popen` fork warm programs. Everything else starts as before."""
    start_cold = subprocess.Popen._execute_child  # type: ignore[attr-defined]
    if hasattr(start_cold, "starts_warm") or not _is_supported():
        return
    signature = inspect.signature(start_cold)
    server = ForkServer()

    def execute_child(popen: Any, *arguments: Any) -> None:
        options = signature.bind(popen, *arguments).arguments
        request = _request(options, server.settings())
        if request is None:
            start_cold(popen, *arguments)
            return
        streams = [options[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        descriptors = [number if end == -1 else end for number, end in enumerate(streams)]
        popen.pid = server.start_program(request, [*descriptors, *options["pass_fds"]])
        popen._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        popen._close_pipe_fds(*(options[name] for name in pipes))

    execute_child.starts_warm = True  # type: ignore[attr-defined]
    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]


def _is_supported() -> bool:
    return platform.machine() in _SYS_CLONE and _tid_address() is not None


def _request(options: Mapping[str, Any], settings: dict[str, str]) -> bytes | None:
    """What the server needs to start the program; None if the program has to start cold."""
    words = options["args"]
    if not isinstance(words, list | tuple) or len(words) < 3 or not _is_warm(*words[:3]):
        return None
    chosen = os.environ if options["env"] is None else options["env"]
    environment = {os.fsdecode(name): os.fsdecode(value) for name, value in chosen.items()}
    argv = [os.fsdecode(word) for word in words]
    directory = os.path.join(os.getcwd(), os.fsdecode(options["cwd"] or ""))
    as_we_are = {"gid": None, "gids": None, "uid": None, "umask": -1, "process_group": -1}
    can_fork = (
        COLD not in environment
        and options["executable"] is None
        and options["preexec_fn"] is None
        and options["close_fds"]
        and not options["shell"]
        and len(options["pass_fds"]) < _MOST_DESCRIPTORS
        and all(options.get(name, value) == value for name, value in as_we_are.items())
        and _interpreter_settings(environment) == settings
        and Path(directory).is_dir()
        # Otherwise Popen raises an error.
        and not any("\0" in word for word in (*argv, *environment, *environment.values()))
        and not any(not name or "=" in name for name in environment)
    )
    if not can_fork:
        return None
    request = {
        "argv": argv,
        "environment": environment,
        "directory": directory,
        "new_session": options["start_new_session"],
        "targets": [0, 1, 2, *options["pass_fds"]],
    }
    packet = json.dumps(request).encode()
    return packet if len(packet) < _LARGEST_REQUEST else None


def _is_warm(program: Any, option: Any, module: Any) -> bool:
    return (
        (program, option) == (sys.executable, "-m")
        and isinstance(module, str)
        and any(module == each or (each[-1] == "." and module.startswith(each)) for each in MODULES)
    )


def _interpreter_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that Python or its libraries read before the program does."""
    names = ("PYTHON", "LC_", "LANG", "MALLOC_", "LD_", "GLIBC_", "OPENSSL_")
    return {name: value for name, value in environment.items() if name.startswith(names)}


def serve(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork a child for each request. Returns in the children only, with what to run."""
    while True:
        packet, descriptors, _, _ = socket.recv_fds(control, _LARGEST_REQUEST, _MOST_DESCRIPTORS)
        if not packet:
            os._exit(0)
        pid = _fork_sibling()
        if pid == 0:
            control.close()
            return json.loads(packet), descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(str(pid).encode())


def _fork_sibling() -> int:
    """Fork a child of our parent, so that the test process can wait for it.

    `fork()` of the C library does the same without CLONE_PARENT. Only one thread exists.
    """
    flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID | signal.SIGCHLD
    # The C library keeps the thread's id. Its place is the 4th or 5th argument of `clone`.
    tid = ctypes.c_void_p(_tid_address())
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _LIBC.syscall(_SYS_CLONE[platform.machine()], ctypes.c_ulong(flags), 0, 0, tid, tid)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    error = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid == -1:
        raise OSError(error, os.strerror(error))
    return int(pid)


def _tid_address() -> int | None:
    """Where the C library keeps the id of this thread. None if the kernel does not tell."""
    address = ctypes.c_void_p()
    found = _LIBC.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0) == 0
    return address.value if found else None


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Turn this process into the requested program, short of running it."""
    if request["new_session"]:
        os.setsid()
    _place(descriptors, request["targets"])
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    argv = request["argv"]
    _show_to_others(argv, request["environment"])
    sys.argv, sys.orig_argv = argv[2:], argv
    sys.path[0] = os.getcwd()
    sys.modules["__main__"] = types.ModuleType("__main__")
    _open_standard_streams()


def _place(descriptors: list[int], targets: list[int]) -> None:
    """Give each descriptor its number and close all others."""
    above = max(targets) + 1
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, above) for each in descriptors]
    for source, target in zip(moved, targets, strict=True):
        os.dup2(source, target)
    open_now = [int(name) for name in os.listdir("/proc/self/fd")]
    for number in set(open_now) - set(targets):
        try:
            os.close(number)
        except OSError:  # the directory that was being listed
            continue


def _show_to_others(argv: list[str], environment: dict[str, str]) -> None:
    """Let /proc and `ps` show these arguments and this environment."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    arguments, rest = (
        b"".join(os.fsencode(text) + b"\0" for text in texts) for texts in (argv, variables)
    )
    shown = ctypes.create_string_buffer(arguments + rest, len(arguments) + len(rest))
    start = ctypes.addressof(shown)
    middle, end = start + len(arguments), start + len(shown)
    # Fields as proc(5) numbers them, from the third.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    code_and_data = [int(fields[number - 3]) for number in (26, 27, 45, 46, 47)]
    stack = int(fields[28 - 3])
    _LIBC.sbrk.restype = ctypes.c_void_p
    brk = _LIBC.sbrk(0)
    # struct prctl_mm_map: no auxv, and the executable stays.
    places = struct.pack(
        "12QIi", *code_and_data, brk, stack, start, middle, middle, end, *(0, 0, -1)
    )
    if _LIBC.prctl(_PR_SET_MM, _PR_SET_MM_MAP, places, ctypes.c_ulong(len(places)), 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot set the arguments that /proc shows")
    _shown.append(shown)


_shown: list[Any] = []
"""Memory that the kernel reads for /proc; it must stay."""


def _open_standard_streams() -> None:
    """As a new interpreter does."""
    buffered = not sys.__stdout__.write_through  # PYTHONUNBUFFERED
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        first = getattr(sys, f"__{name}__")
        mode = "w" if number else "r"
        buffering = -1 if buffered or number == 0 else 0
        binary = io.open(number, f"{mode}b", buffering, closefd=False)  # noqa: SIM115, UP020
        raw = getattr(binary, "raw", binary)
        raw.name = f"<{name}>"
        stream = io.TextIOWrapper(
            binary,
            encoding=first.encoding,
            errors=first.errors,
            newline="\n",
            line_buffering=buffered and (number == 2 or raw.isatty()),
            write_through=not buffered,
        )
        stream.mode = mode  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run(module: str) -> NoReturn:
    """Run the program and exit as Python does, but without taking the shared heap apart."""
    code, interrupted = 1, False
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        runpy._run_module_as_main(module)  # type: ignore[attr-defined]
        code = 0
    except SystemExit as request:
        code = _exit_code(request)
    except BaseException as error:  # noqa: BLE001  # any error ends the program
        interrupted = isinstance(error, KeyboardInterrupt)
        frames = error.__traceback__ and error.__traceback__.tb_next  # without this function
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        del error, frames
    if not _finish():
        code = 120
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


def _exit_code(request: SystemExit) -> int:
    if request.code is None:
        return 0
    if isinstance(request.code, int):
        return request.code & 0xFF
    print(request.code, file=sys.stderr)
    return 1


def _finish() -> bool:
    """Do what Python does at the end of a program. Returns whether all output was written."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    except BaseException as error:  # noqa: BLE001  # such as an interrupt while threads end
        _report_ignored(error, threading)
    atexit._run_exitfuncs()
    flushed = _flush()
    gc.collect()  # objects that were never closed warn now
    return _flush() and flushed


def _flush() -> bool:
    flushed = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException as error:  # noqa: BLE001  # nothing else can be done about it
            flushed = False
            if stream is sys.stdout:
                _report_ignored(error, stream)
    return flushed


def _report_ignored(error: BaseException, place: object) -> None:
    details = (type(error), error, error.__traceback__, None, place)
    sys.unraisablehook(sys.UnraisableHookArgs(details))  # type: ignore[call-arg,arg-type]


def main() -> None:
    # Interrupts from the terminal are for the tests. Each program unblocks them when it runs.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    for name in PRELOADED:
        module = importlib.import_module(name)
        if module.__name__.startswith("paddock.interfaces"):
            for each in pkgutil.walk_packages(module.__path__, f"{name}."):
                importlib.import_module(each.name)
    gc.collect()
    gc.freeze()  # so that collections in children do not copy shared pages
    request, descriptors = serve(socket.socket(fileno=int(sys.argv[1])))
    become(request, descriptors)
    run(sys.argv[0])


if __name__ == "__main__":
    main()
