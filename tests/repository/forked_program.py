"""What the tests of the fork server start: each function is an action of the program."""

import atexit
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path


def describe(*_: str) -> None:
    """Everything about this process that a program can see of how it was started."""
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
    )
    streams = (sys.stdin, sys.stdout, sys.stderr)
    facts = {
        "warm": "paddock.wiring" in sys.modules,
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "main": [__name__, __package__, __file__, __spec__.name],
        "path": sys.path,
        "cmdline": os.fsdecode(Path("/proc/self/cmdline").read_bytes()),
        "environ": sorted(os.fsdecode(Path("/proc/self/environ").read_bytes()).split("\0")),
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
        "inheritable": [os.get_inheritable(number) for number in (0, 1, 2)],
        "streams": [repr(stream) for stream in streams],
        "encodings": [(stream.encoding, stream.errors) for stream in streams],
        "buffers": [
            (type(stream.buffer).__name__, stream.line_buffering, stream.write_through)
            for stream in streams
        ],
        "terminals": [stream.isatty() for stream in streams],
        "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt")},
        "handlers": [str(signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGPIPE)],
        "threads": [status["Threads"], threading.active_count()],
        "names": [status["Name"], threading.current_thread().name],
        "user": [status[name] for name in ("Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapBnd")],
        "owner": os.stat("/proc/self/environ").st_uid,
        "umask": status["Umask"],
        "parent": os.getppid(),
        "session": os.getsid(0) == os.getpid(),
        "group": os.getpgid(0) == os.getpid() or os.getpgid(0),
        "zone": time.tzname,
    }
    print(json.dumps(facts))


def copy_text() -> None:
    sys.stdout.write(repr(sys.stdin.read()))


def fail() -> None:
    raise ValueError("too bad")


def hook() -> None:
    sys.excepthook = lambda *error: print("hooked", error[1], file=sys.stderr)
    fail()


def exit_with(code: str) -> None:
    sys.exit(eval(code))


def finish() -> None:
    """Threads end, then functions run, then the output is written; daemons do not keep it."""
    atexit.register(print, "at the end")

    def work() -> None:
        time.sleep(0.01)
        print("from a thread")

    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    threading.Thread(target=work).start()
    print("from the program")


class Cycle:
    """Only the garbage collector frees it."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        sys.stderr.write("a cycle was collected")


def leave_a_cycle() -> None:
    Cycle()


def write_much() -> None:
    """Until the reader has had enough."""
    while True:
        print("x" * 60)


def write_late() -> None:
    """Into a pipe that has no reader by the time of the flush."""
    sys.stdout.write("x")
    sys.stdin.read()


def print_odd_names() -> None:
    print(os.fsdecode(b"\xff"))


def sleep() -> None:
    """In short steps: a signal just before a long one would be handled after it."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        time.sleep(0.02)


def wait() -> None:
    print("ready", flush=True)
    sleep()


def interrupt_from_a_thread() -> None:
    """The C library must know the id of the main thread."""
    main = threading.main_thread().ident
    assert main is not None
    threading.Thread(target=signal.pthread_kill, args=(main, signal.SIGINT)).start()
    sleep()


def abort() -> None:
    os.abort()


def use_descriptor(number: str) -> None:
    os.write(int(number), b"here")


def spawn() -> None:
    print(os.spawnvp(os.P_WAIT, "sh", ["sh", "-c", "exit 5"]))
    pid = os.fork()
    if pid == 0:
        print("child", flush=True)
        os._exit(0)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    action: Callable[..., None] = globals()[sys.argv[1]]
    action(*sys.argv[2:])
