"""The terminal that a person sits at: whether there is one, its size, and raw mode."""

import contextlib
import os
import termios
import tty
from collections.abc import Iterator

_USUAL = (80, 24)


def is_terminal(*descriptors: int) -> bool:
    return all(_isatty(descriptor) for descriptor in descriptors)


def _isatty(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return os.isatty(descriptor)
    return False


def is_readable(descriptor: int) -> bool:
    """Whether input can be read: not closed, and not a terminal that another program has."""
    try:
        if not os.isatty(descriptor):
            os.fstat(descriptor)
            return True
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False


def size(*descriptors: int) -> tuple[int, int]:
    """Columns and rows of the first that has a size."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            found = os.get_terminal_size(descriptor)
            if found.columns > 0 and found.lines > 0:
                return found.columns, found.lines
    return _USUAL


@contextlib.contextmanager
def raw(descriptor: int) -> Iterator[None]:
    """Every key goes through as it is, Ctrl-C included; restored whatever happens."""
    if not is_terminal(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
