"""TCP ports that no other test and no other program takes.

A port that the kernel picks for `bind(0)` may go to an outgoing connection before it is used. These
ports lie below the kernel's range, and a lock file reserves each for the process that asked.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import IO

_DIRECTORY = Path(tempfile.gettempdir()) / f"ports-of-tests-{os.getuid()}"
_FIRST = 20_000
_held: list[IO[str]] = []


def free_port() -> int:
    """Return a port that is reserved for this process until it ends."""
    _DIRECTORY.mkdir(exist_ok=True)
    span = _last() - _FIRST
    start = os.getpid() * 61
    for number in range(span):
        port = _FIRST + (start + number + len(_held)) % span
        if _reserve(port):
            return port
    raise RuntimeError(f"no port is free between {_FIRST} and {_last()}")


def _last() -> int:
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


def _reserve(port: int) -> bool:
    lock = (_DIRECTORY / str(port)).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except OSError:
        lock.close()
        return False
    _held.append(lock)
    return True
