"""The launcher: a small root process that starts runtimes and has guests forked.

It lives in a mount namespace of its own (the host's later mounts arrive, its own never leave), so
that what it mounts for a sandbox is seen by nobody else and is gone when it ends; crun, which
refuses hosts with cgroup v1 and v2 side by side, sees only the one with the controllers there. It
is a single thread around one poll(2). Requests and answers are JSON packets on
the socket it was started with; end of file means that the control plane is gone, and it follows.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from paddock.adapters.providers.host import join, mounts, seccomp, syscalls, zygote
from paddock.guest.rehearsal import rehearse
from paddock.guest.server import preload

_PACKET = 1 << 20
_ORDER_S = 5.0
"""How long the zygote may be too busy to take an order."""
_LAST_WORDS_S = 10.0
"""How long runtimes that are under way may take to finish after the control plane has gone."""


@dataclass
class _Program:
    """A runtime that is running for somebody."""

    request: int
    output: int
    deadline: float
    after: Callable[[], None]


@dataclass
class _Arrival:
    """A guest on its way in."""

    request: int
    timeout: float
    deadline: float


@dataclass
class Launcher:
    """The state of the process: who is being waited for."""

    control: socket.socket
    zygote_pid: int
    zygote: socket.socket
    mounter: mounts.Mounter
    programs: dict[int, _Program] = field(default_factory=dict)
    reports: dict[int, _Arrival] = field(default_factory=dict)
    """Guests on their way in, by the pipes on which they report."""
    poll: Any = field(default_factory=select.poll)

    def run(self) -> None:
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self.poll.register(self.control, select.POLLIN)
        self.poll.register(wake_read, select.POLLIN)
        while True:
            for fd, _ in self.poll.poll(200 if self.programs or self.reports else None):
                if fd == self.control.fileno():
                    if not self._take_request():
                        self._finish()
                        return
                elif fd == wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                elif fd in self.reports:
                    self._take_report(fd)
            self._reap()
            self._enforce_deadlines()

    def _take_request(self) -> bool:
        packet, fds, _, _ = socket.recv_fds(self.control, _PACKET, 1)
        if not packet:
            return False
        message = json.loads(packet)
        request = message.pop("request")
        operation = message.pop("operation")
        try:
            match operation:
                case "run":
                    self._start(request, **message)
                case "join":
                    self._join(request, fds[0], message.pop("timeout"), message)
                case _:
                    self._answer(request, error=f"unknown operation {operation!r}")
        except (OSError, TypeError, ValueError, RuntimeError, LookupError) as error:
            self._answer(request, error=f"{type(error).__name__}: {error}")
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _answer(self, request: int, **content: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.control.send(json.dumps({"request": request, **content}).encode())

    def _start(self, request: int, argv: list[str], timeout: float, **wanted: Any) -> None:
        """Run a program; what it wants to have mounted is so for just as long as it takes."""
        undo = self.mounter.mount_all(**wanted)
        output = os.memfd_create("output")
        # Not /dev/null: crun changes the owner of its standard streams to the sandbox's root, who
        # could then change the permissions of the host's device.
        nothing, write = os.pipe()
        os.close(write)
        try:
            pid = os.posix_spawnp(
                argv[0],
                argv,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, nothing, 0),
                    (os.POSIX_SPAWN_DUP2, output, 1),
                    (os.POSIX_SPAWN_DUP2, output, 2),
                ],
                setsigmask=[],
                setsigdef=[signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT],
                setpgroup=0,
            )
        except OSError:
            os.close(output)
            undo()
            raise
        finally:
            os.close(nothing)
        self.programs[pid] = _Program(request, output, time.monotonic() + timeout, undo)

    def _join(self, request: int, listener: int, timeout: float, order: dict[str, Any]) -> None:
        """Have the zygote fork a guest; the guest itself says when it is in."""
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            socket.send_fds(self.zygote, [json.dumps(order).encode()], [listener, write])
        finally:
            os.close(write)
        self.reports[read] = _Arrival(request, timeout, time.monotonic() + timeout)
        self.poll.register(read, select.POLLIN)

    def _take_report(self, fd: int) -> None:
        text = os.read(fd, 4096).decode(errors="replace")
        arrival = self._stop_waiting(fd)
        if text == join.IN:
            self._answer(arrival.request)
        else:
            self._answer(arrival.request, error=text or "the guest was killed on its way in")

    def _stop_waiting(self, report: int) -> _Arrival:
        self.poll.unregister(report)
        os.close(report)
        return self.reports.pop(report)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.zygote_pid:
                raise SystemExit("the zygote died")  # the control plane starts us both anew
            if program := self.programs.pop(pid, None):
                self._conclude(program, os.waitstatus_to_exitcode(status))

    def _conclude(self, program: _Program, code: int) -> None:
        os.lseek(program.output, 0, os.SEEK_SET)
        output = os.read(program.output, 64 << 10).decode(errors="replace")
        os.close(program.output)
        program.after()
        self._answer(program.request, code=code, output=output)

    def _enforce_deadlines(self) -> None:
        now = time.monotonic()
        for pid, program in self.programs.items():
            if program.deadline < now:
                os.killpg(pid, signal.SIGKILL)
        for fd in [fd for fd, arrival in self.reports.items() if arrival.deadline < now]:
            late = self._stop_waiting(fd)
            text = f"the guest did not get into the sandbox within {late.timeout:g} s"
            self._answer(late.request, late=text)

    def _finish(self) -> None:
        """Let what is under way end by itself, so that whoever cleans up finds it whole."""
        until = time.monotonic() + _LAST_WORDS_S
        while self.programs and time.monotonic() < until:
            time.sleep(0.005)
            self._reap()
        for pid in self.programs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def main() -> None:
    """Started by LaunchControl with the control socket's number and a directory for mounts."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    for kept in sys.argv[5].split(",") if sys.argv[5] else ():
        os.set_inheritable(int(kept), False)  # no runtime shall keep the owner's lock
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    syscalls.set_child_subreaper()
    directory, speed, pool = sys.argv[2:5]
    syscalls.set_title("paddock-launcher")
    mounter = mounts.Mounter.in_private_namespace(directory, pool)
    if speed == "fast":
        mounter.favour_cgroup_changes()
    preload()
    rehearse(f"{directory}/rehearsal")
    zygote_pid, orders = zygote.start(seccomp.compile_filter())
    orders.settimeout(_ORDER_S)
    launcher = Launcher(control, zygote_pid, orders, mounter)
    control.send(b'{"request": 0}')
    launcher.run()
