"""How the socket of a packed guest comes out of its sandbox, and nothing else does.

At the start it comes through the door: a directory of the sandbox's own volume, so that what is put
there counts against the sandbox's own disk. The door is open only until the guest has made its
socket. Then the socket is taken to where the sandbox cannot reach it and the directory is removed,
in which nothing can be made any more even by those who still have it open.

A guest that has left for a snapshot with memory (`paddock.guest.door`) comes back by a place among
its own files, while everything else in the sandbox runs. Its root may meddle there: with sockets of
its own, behind which is nothing that it does not rule already. It cannot lead the host to any other
file or socket: the host goes by descriptors and follows no link.
"""

import asyncio
import json
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from paddock.adapters.providers.local.storage.trees import remove_tree
from paddock.domain.errors import Broken, Unavailable
from paddock.guest import door as inside

_START_S = 20.0
TOKEN = "token"  # noqa: S105 - a file name
SOCKET = "guest.sock"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_Identity = tuple[int, int, int]
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def open_door(volume: Path, token: str) -> Path:
    door = volume / "door"
    remove_tree(door)  # from a start that failed, or in the volume that this one was copied of
    remove_tree(volume / SOCKET)
    door.mkdir(mode=0o700)
    (door / TOKEN).touch(mode=0o600, exist_ok=False)
    (door / TOKEN).write_text(token)
    return door


async def close_door(volume: Path, address: Path, is_alive: Callable[[], bool]) -> None:
    """Wait for the guest, and take its socket to where it is reached from then on."""
    door = volume / "door"
    with _opened(door) as place:
        await _take_socket(place, volume, address, is_alive)
    try:
        (door / TOKEN).unlink()
        door.rmdir()
    except OSError as error:
        address.unlink()
        raise Broken(
            f"sandbox {volume.name} changes what its guest starts with: {error}"
        ) from error


async def expect_to_leave(volume: Path) -> None:
    """What was said when the guest left before counts no more."""
    await _remove(volume, f"guest/{inside.LEFT}")


def has_left(volume: Path) -> bool:
    return os.path.lexists(volume / "guest" / inside.LEFT)


def write_letter(volume: Path, token: str) -> None:
    """Tell the guest that has left who it is, and so that it shall listen again."""
    with _opened(volume / "guest") as home:
        remove_tree(volume / "guest" / inside.PLACE)
        os.mkdir(inside.PLACE, mode=0o700, dir_fd=home)
        place = os.open(inside.PLACE, _DIRECTORY, dir_fd=home)
        try:
            _write(place, json.dumps({"token": token, "sandboxId": volume.name}))
        finally:
            os.close(place)


def _write(place: int, text: str) -> None:
    """As a whole: it is looked for all the time."""
    draft = f".{inside.LETTER}"
    with os.fdopen(os.open(draft, _NEW, 0o600, dir_fd=place), "w") as file:
        file.write(text)
    os.rename(draft, inside.LETTER, src_dir_fd=place, dst_dir_fd=place)


async def take_back(volume: Path, address: Path, is_alive: Callable[[], bool]) -> None:
    """Wait until the guest has come back, and take its new socket out of its reach."""
    try:
        with _opened(volume / "guest") as home:
            place = os.open(inside.PLACE, _DIRECTORY, dir_fd=home)
        try:
            await _take_socket(place, volume, address, is_alive)
        finally:
            os.close(place)
    except OSError as error:
        raise Broken(f"sandbox {volume.name} keeps its guest from coming back: {error}") from error
    finally:
        for name in (f"guest/{inside.LEFT}", f"guest/{inside.PLACE}", "door"):
            await _remove(volume, name)


async def _remove(volume: Path, name: str) -> None:
    """Whatever the sandbox has put there, as much of it as it likes and while it runs."""
    try:
        await asyncio.to_thread(remove_tree, volume / name)
    except OSError as error:
        raise Broken(
            f"sandbox {volume.name} does not let its {name} be removed: {error}",
            remediation="end what meddles there, or stop and start the sandbox",
        ) from error


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, _DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def _take_socket(
    place: int, volume: Path, address: Path, is_alive: Callable[[], bool]
) -> None:
    taken = volume / SOCKET
    await asyncio.to_thread(remove_tree, taken)  # anything, if another was exchanged before
    listening = await _listening(place, volume.name, is_alive)
    try:
        os.rename(SOCKET, taken, src_dir_fd=place)
    except OSError as error:
        raise Broken(f"sandbox {volume.name} moves its guest's socket: {error}") from error
    if _identity(taken.lstat()) != listening:  # from now on nothing inside can exchange it
        raise Broken(f"sandbox {volume.name} exchanged its guest's socket for something else")
    address.unlink(missing_ok=True)
    address.symlink_to(taken)  # a socket's own path may not be as long as the pool's can be


async def _listening(place: int, sandbox: str, is_alive: Callable[[], bool]) -> _Identity:
    """Which file the socket is, once somebody listens there. Before, gVisor is not done with it."""
    until = time.monotonic() + _START_S
    while True:
        alive = is_alive()
        if (found := _try(place, sandbox)) is not None:
            return found
        if not alive:
            raise Unavailable(
                f"the guest of sandbox {sandbox} ended before it listened",
                remediation="it needs a Python 3.9 or newer in the template",
            )
        if time.monotonic() > until:
            raise Unavailable(f"the guest of sandbox {sandbox} does not listen after {_START_S} s")
        await asyncio.sleep(0.005)


def _try(place: int, sandbox: str) -> _Identity | None:
    """Connect to a socket with this very name; what else may stand there is not followed."""
    try:
        file = os.open(SOCKET, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(file)
        if not stat.S_ISSOCK(found.st_mode):
            raise Broken(f"what sandbox {sandbox} offers as its guest's socket is none")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
            probe.connect(f"/proc/self/fd/{file}")
    except (ConnectionRefusedError, BlockingIOError):
        return None
    finally:
        os.close(file)
    return _identity(found)


def _identity(found: os.stat_result) -> _Identity:
    """With its type, as a link may have got the number of a socket that was removed."""
    return found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode)
