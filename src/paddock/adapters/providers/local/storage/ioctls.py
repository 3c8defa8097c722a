"""The kernel's btrfs interface, one function per request; every one raises OSError."""

import ctypes
import fcntl
import os
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

FIRST_FREE_OBJECTID = 256
"""The inode number of every subvolume's root directory; no other directory on btrfs has it."""

NO_LIMIT = 2**64 - 1
SIMPLE_QUOTA, CLASSIC_QUOTA = 4, 1

_ROOT_TREE = 1
_INODE_ITEM, _ROOT_ITEM, _ROOT_REF = 1, 132, 156
_MAX_REFERENCED = 1
_HANDLE_WITHOUT_PARENT = 0x4D
_NONE, _WRITE, _READ, _BOTH = 0, 1, 2, 3


def _request(direction: int, number: int, size: int) -> int:
    return direction << 30 | size << 16 | 0x94 << 8 | number


_SUBVOL_CREATE = _request(_WRITE, 14, 4096)
_SNAP_DESTROY = _request(_WRITE, 15, 4096)
_SNAP_CREATE_V2 = _request(_WRITE, 23, 4096)
_SUBVOL_SETFLAGS = _request(_WRITE, 26, 8)
_TREE_SEARCH = _request(_BOTH, 17, 4096)
_INO_LOOKUP = _request(_BOTH, 18, 4096)
_FS_INFO = _request(_READ, 31, 1024)
_QUOTA_CTL = _request(_BOTH, 40, 16)
_QGROUP_ASSIGN = _request(_WRITE, 41, 24)
_QGROUP_CREATE = _request(_WRITE, 42, 16)
_QGROUP_LIMIT = _request(_READ, 43, 48)
_FS_SYNC = _request(_NONE, 8, 0)
_FICLONE = 0x40049409
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20


_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Nested:
    """A subvolume within another: its ID, and the inode of its directory and its name there."""

    id: int
    directory: int
    name: bytes


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def create_subvolume(parent: int, name: str) -> None:
    fcntl.ioctl(parent, _SUBVOL_CREATE, bytearray(struct.pack("=q4088s", 0, os.fsencode(name))))


def snapshot(source: int, parent: int, name: str) -> None:
    """A writable copy of the subvolume `source`; subvolumes nested in it stay behind."""
    argument = struct.pack("=qQQ32x4040s", source, 0, 0, os.fsencode(name))
    fcntl.ioctl(parent, _SNAP_CREATE_V2, bytearray(argument))


def destroy_subvolume(parent: int, name: str | bytes) -> None:
    fcntl.ioctl(parent, _SNAP_DESTROY, bytearray(struct.pack("=q4088s", 0, os.fsencode(name))))


def make_writable(subvolume: int) -> None:
    """Clear the read-only flag, so that the content of the subvolume can be removed."""
    fcntl.ioctl(subvolume, _SUBVOL_SETFLAGS, struct.pack("=Q", 0))


@contextmanager
def opened_by_id(
    filesystem: int, subvolume: int, inode: int = FIRST_FREE_OBJECTID
) -> Iterator[int]:
    """Open a directory by its numbers: its path may be too long, or change meanwhile."""
    found = next(_search(filesystem, subvolume, inode, _INODE_ITEM))[1]
    generation = struct.unpack_from("=Q", found)[0] & 0xFFFFFFFF
    handle = struct.pack("=Ii", 20, _HANDLE_WITHOUT_PARENT)
    handle += struct.pack("=QQI", inode, subvolume, generation)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = _libc.open_by_handle_at(filesystem, handle, flags)
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"directory {inode} of subvolume {subvolume}: {os.strerror(code)}")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def subvolume_id(directory: int) -> int:
    """The id of the subvolume that holds the directory."""
    answer = bytearray(4096)
    struct.pack_into("=QQ", answer, 0, 0, FIRST_FREE_OBJECTID)
    fcntl.ioctl(directory, _INO_LOOKUP, answer)
    return int(struct.unpack_from("=Q", answer)[0])


def nested_subvolumes(filesystem: int, parent: int) -> list[Nested]:
    return [_nested(*found) for found in _search(filesystem, _ROOT_TREE, parent, _ROOT_REF)]


def _nested(subvolume: int, reference: bytes) -> Nested:
    directory, _, length = struct.unpack_from("=QQH", reference)
    return Nested(subvolume, directory, reference[18 : 18 + length])


def subvolume_exists(filesystem: int, subvolume: int) -> bool:
    """Also true for one that was destroyed but is still being taken apart."""
    return any(True for _ in _search(filesystem, _ROOT_TREE, subvolume, _ROOT_ITEM))


def _search(filesystem: int, tree: int, objectid: int, kind: int) -> Iterator[tuple[int, bytes]]:
    """Yield the offsets and contents of all items of one kind."""
    offset = 0
    while True:
        page = bytearray(4096)
        bounds = (tree, objectid, objectid, offset, NO_LIMIT, 0, NO_LIMIT)
        struct.pack_into("=7Q4I", page, 0, *bounds, kind, kind, 64, 0)
        fcntl.ioctl(filesystem, _TREE_SEARCH, page)
        found = struct.unpack_from("=I", page, 64)[0]
        if not found:
            return
        position = 104
        for _ in range(found):
            _, _, offset, _, length = struct.unpack_from("=QQQII", page, position)
            position += 32
            yield offset, bytes(page[position : position + length])
            position += length
        if offset == NO_LIMIT:
            return
        offset += 1


def filesystem_uuid(directory: int) -> str:
    answer = bytearray(1024)
    fcntl.ioctl(directory, _FS_INFO, answer)
    return str(uuid.UUID(bytes=bytes(answer[16:32])))


def enable_quota(filesystem: int, kind: int) -> None:
    fcntl.ioctl(filesystem, _QUOTA_CTL, bytearray(struct.pack("=QQ", kind, 0)))


def create_qgroup(filesystem: int, qgroup: int) -> None:
    fcntl.ioctl(filesystem, _QGROUP_CREATE, bytearray(struct.pack("=QQ", 1, qgroup)))


def remove_qgroup(filesystem: int, qgroup: int) -> None:
    fcntl.ioctl(filesystem, _QGROUP_CREATE, bytearray(struct.pack("=QQ", 0, qgroup)))


def assign_qgroup(filesystem: int, member: int, group: int) -> None:
    fcntl.ioctl(filesystem, _QGROUP_ASSIGN, bytearray(struct.pack("=QQQ", 1, member, group)))


def unassign_qgroup(filesystem: int, member: int, group: int) -> None:
    fcntl.ioctl(filesystem, _QGROUP_ASSIGN, bytearray(struct.pack("=QQQ", 0, member, group)))


def limit_qgroup(filesystem: int, qgroup: int, most_bytes: int) -> None:
    argument = struct.pack("=6Q", qgroup, _MAX_REFERENCED, most_bytes, 0, 0, 0)
    fcntl.ioctl(filesystem, _QGROUP_LIMIT, bytearray(argument))


def sync_filesystem(directory: int) -> None:
    """Write everything out, commit, and wake whoever takes destroyed subvolumes apart."""
    fcntl.ioctl(directory, _FS_SYNC)


def clone_file(source: int, target: int) -> None:
    fcntl.ioctl(target, _FICLONE, source)


def clear_protection(file: int) -> bool:
    """Take the immutable and append-only bits away; whether there were any."""
    flags = struct.unpack("=q", fcntl.ioctl(file, _GET_FLAGS, bytes(8)))[0]
    if not flags & (_IMMUTABLE | _APPEND_ONLY):
        return False
    fcntl.ioctl(file, _SET_FLAGS, struct.pack("=q", flags & ~(_IMMUTABLE | _APPEND_ONLY)))
    return True
