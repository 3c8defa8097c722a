"""Help for a child that was stopped on its way to its program, while the guest waits for it.

Once the child has become another user, every process of that user may stop it until execve is
done; and whoever waits for it, as vfork does, waits for ever. Not to wait is no way out: a child
that shares memory with a parent which goes on makes the kernel compare every process of the host
each time that the parent's OOM score is written, twice for every command.
"""

from __future__ import annotations

import _thread
import ctypes
import errno
import os
import signal
import time

from .syscalls import timer_create, timer_set
from .tree import read_proc, send

_LATE = 0.02
_HELD = "TtS"  # stopped, traced, or asleep until somebody lets go of the program's file
_LOOK_HELD, _MOST_LOOKS_HELD = 0.001, 200
_LOOK_BUSY, _MOST_LOOKS_BUSY = 0.02, 500
_STACK = 256 << 10


class Rescue:
    """A thread that sleeps until a start takes longer than a start should.

    It is made for the first start that needs it, and costs 16 KiB. What wakes it is a timer, which
    is cleared again before it has run out: so it does not run at all unless a child is late.
    """

    def __init__(self) -> None:
        self.pid = ctypes.c_int(0)
        """The child, once there is one; the kernel itself may write it."""
        self._timer = -1
        self._lock = _thread.allocate_lock()
        self._round = 0
        self._is_on = False
        self._has_killed = False

    def stand_by(self) -> None:
        """A child will be started now. To be called with all signals blocked."""
        if self._timer < 0:
            self._start_thread()
        self._round += 1
        self.pid.value = 0
        self._has_killed = False
        self._is_on = True
        timer_set(self._timer, _LATE)

    def stand_down(self) -> bool:
        """It needs no help any more. True if there was none but to kill it."""
        timer_set(self._timer, 0)
        with self._lock:
            self._is_on = False
            return self._has_killed

    def _start_thread(self) -> None:
        timer = timer_create()
        before = _thread.stack_size(_STACK)
        try:
            _thread.start_new_thread(self._sleep_and_help, (timer,))
        except RuntimeError:
            os.close(timer)
            raise BlockingIOError(errno.EAGAIN, "no thread can be started") from None
        finally:
            _thread.stack_size(before)
        self._timer = timer

    def _sleep_and_help(self, timer: int) -> None:
        while True:
            os.read(timer, 8)
            self._help(self._round)

    def _help(self, round_: int) -> None:
        """Looks are counted and not seconds: the whole sandbox may be frozen meanwhile."""
        held = busy = 0
        while held < _MOST_LOOKS_HELD and busy < _MOST_LOOKS_BUSY:
            if not self._send(round_, signal.SIGCONT):
                return
            proc = read_proc(self.pid.value)
            is_held = proc is not None and proc.state in _HELD
            held += is_held
            busy += not is_held
            time.sleep(_LOOK_HELD if is_held else _LOOK_BUSY)
        self._send(round_, signal.SIGKILL)

    def _send(self, round_: int, number: int) -> bool:
        """False when that start is over. It cannot end meanwhile, nor its pid become another's."""
        with self._lock:
            if not self._is_on or self._round != round_:
                return False
            if self.pid.value > 0:
                send(self.pid.value, number)
                self._has_killed = number == signal.SIGKILL
            return True
