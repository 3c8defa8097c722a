"""Terminals: made without openpty, which may ask NSS for the group `tty`."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

_TIOCSPTLCK = 0x40045431
_TIOCGPTPEER = 0x5441
_TIOCGPTN = 0x80045430


def open_terminal(size: tuple[int, int]) -> tuple[int, int]:
    """Our end and the program's end of a new terminal of so many columns and rows."""
    master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
        resize(master, size)
        return master, _open_slave(master)
    except OSError:
        os.close(master)
        raise


def resize(fd: int, size: tuple[int, int]) -> None:
    columns, rows = size
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _open_slave(master: int) -> int:
    flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return fcntl.ioctl(master, _TIOCGPTPEER, flags)
    except OSError:  # gVisor and kernels before 4.13 know the terminal by its number only
        number = struct.unpack("I", fcntl.ioctl(master, _TIOCGPTN, bytes(4)))[0]
        return os.open(f"/dev/pts/{number}", flags)
