"""What a program is given to read, as a file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def readable(text: str) -> Iterator[int]:
    """A descriptor with a text behind it, for a program's standard input.

    Not a pipe: one that ends before it has read all, or anything, fails whoever writes into it.
    """
    descriptor = os.memfd_create("input", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(text.encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
