"""Removing a whole tree by descriptors, so that no link swapped in meanwhile leads out of it."""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
from collections.abc import Generator
from contextlib import suppress

from . import paths, rights
from .users import Account

_AT_ONCE = 200


async def remove(directory: int, name: bytes, account: Account | None = None) -> None:
    """Remove a name in an open directory and all below it, as far as the account may.

    Without an account the guest itself does it. FileNotFoundError if it is absent.
    """
    steps = _steps(directory, name)
    try:
        while True:
            with rights.of(account):
                count = sum(1 for _ in itertools.islice(steps, _AT_ONCE))
            if count < _AT_ONCE:
                return
            await asyncio.sleep(0)
    finally:
        steps.close()


def remove_now(path: str) -> None:
    """The same at once, for what is known to be small. Absent is success."""
    parent, name = os.path.split(path)
    with suppress(FileNotFoundError), paths.opened(os.fsencode(parent), os.O_PATH) as directory:
        for _ in _steps(directory, os.fsencode(name)):
            pass


def _steps(directory: int, name: bytes) -> Generator[None, None, None]:
    """The removal, entry by entry, so that others get their turn in between."""
    if not _is_directory(directory, name):
        os.unlink(name, dir_fd=directory)
        return
    # Each level: where its name stands, the name, the open directory, what is left to do in it.
    levels = [(directory, name, *_open(directory, name))]
    try:
        while levels:
            parent, own_name, fd, names = levels[-1]
            if not names:
                levels.pop()
                os.close(fd)
                with suppress(FileNotFoundError):
                    os.rmdir(own_name, dir_fd=parent)
                continue
            inner = names.pop()
            if _is_directory(fd, inner):
                levels.append((fd, inner, *_open(fd, inner)))
            else:
                with suppress(FileNotFoundError):
                    os.unlink(inner, dir_fd=fd)
            yield
    finally:
        for level in levels:
            os.close(level[2])


def _open(directory: int, name: bytes) -> tuple[int, list[bytes]]:
    fd = paths.open_path(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    try:
        return fd, [os.fsencode(entry) for entry in os.listdir(fd)]
    except OSError:
        os.close(fd)
        raise


def _is_directory(directory: int, name: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
