"""Leaving, so that a sandbox can be written to disk with its memory, and coming back.

A socket that a host can see is nothing that gVisor can write down. So the guest lets go of it and
of all its connections, waits for a letter that says who it is from now on, and listens again. It
waits in the sandbox that goes on as well as in every one that is made of what was written: only the
letter tells which of them it is.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Callable

LEFT = "left"
PLACE = "return"
LETTER = "letter.json"
SOCKET = "guest.sock"
_LOOK_EVERY = 0.01


@dataclass(frozen=True)
class Letter:
    """Who the guest is after it has left."""

    token: str
    sandbox_id: str


def listen(path: str) -> socket.socket:
    """A socket for the guest's own user alone."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.path.lexists(path):
        os.unlink(path)
    mask = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(mask)
    listener.listen(1024)
    return listener


def say_left(state_dir: str) -> None:
    """For the host, to whom a socket that was closed in here looks open for a while."""
    with suppress(OSError):
        os.close(os.open(os.path.join(state_dir, LEFT), os.O_WRONLY | os.O_CREAT, 0o600))


async def wait_for_letter(state_dir: str, is_over: Callable[[], bool]) -> Letter | None:
    """What the host has laid into the place of return; None when it is over before."""
    path = os.path.join(state_dir, PLACE, LETTER)
    while not is_over():
        with suppress(OSError, ValueError, KeyError, TypeError):
            return _read(path)
        await asyncio.sleep(_LOOK_EVERY)
    return None


def _read(path: str) -> Letter:
    with open(path, encoding="utf-8") as file:
        text = json.loads(file.read(1 << 16))
    return Letter(str(text["token"]), str(text["sandboxId"]))


def listen_again(state_dir: str) -> socket.socket:
    """Beside the letter, from where the host takes the socket away."""
    return listen(os.path.join(state_dir, PLACE, SOCKET))
