"""Which TCP ports programs in the sandbox listen on."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from . import rights
from .connect import Message
from .environment import decode
from .tree import read_small

_LISTEN = b"0A"
_MOST_LINES = 100_000


@dataclass(frozen=True)
class _Listener:
    port: int
    address: str
    inode: bytes


def listening() -> list[Message]:
    """Each port once for each address, with the program behind it where that can be seen."""
    listeners = [*_read("/proc/net/tcp", socket.AF_INET), *_read("/proc/net/tcp6", socket.AF_INET6)]
    owners = _owners({listener.inode for listener in listeners})
    ports = []
    for listener in sorted(listeners, key=lambda found: (found.port, found.address)):
        port: Message = {"port": listener.port, "address": listener.address}
        if listener.inode in owners:
            port["pid"], port["command"] = owners[listener.inode]
        ports.append(port)
    return ports


def _read(path: str, family: int) -> list[_Listener]:
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines()[1:_MOST_LINES]
    except OSError:
        return []
    found = []
    for line in lines:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN:
            address, _, port = fields[1].partition(b":")
            found.append(_Listener(int(port, 16), _address(address, family), fields[9]))
    return found


def _address(text: bytes, family: int) -> str:
    """The kernel prints addresses as 32-bit words in its own byte order."""
    raw = bytes.fromhex(text.decode("ascii"))
    words = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    return socket.inet_ntop(family, words)


def _owners(inodes: set[bytes]) -> dict[bytes, tuple[int, str]]:
    owners: dict[bytes, tuple[int, str]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or len(owners) == len(inodes):
            continue
        for inode in _sockets(name) & inodes:
            comm = decode(read_small(f"/proc/{name}/comm").rstrip(b"\n"))
            owners.setdefault(inode, (int(name), comm))
    return owners


def _sockets(pid: str) -> set[bytes]:
    directory = f"/proc/{pid}/fd"
    try:
        # Root without the right to trace sees only its own; a program's owner sees the program.
        owner = os.stat(f"/proc/{pid}")
        with rights.of_ids(owner.st_uid, owner.st_gid):
            links = [os.readlink(f"{directory}/{fd}") for fd in os.listdir(directory)]
    except OSError:
        return set()
    return {link[8:-1].encode() for link in links if link.startswith("socket:[")}
