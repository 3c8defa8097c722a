"""The kernel calls that Python's standard library does not offer."""

import contextlib
import ctypes
import os
import signal
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_BIND = 4096
MS_REC = 16384
MS_SLAVE = 1 << 19
MNT_DETACH = 2
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4
MOUNT_ATTR_NOEXEC = 8

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NAME = 15
_PR_SET_SECUREBITS = 28
_PR_SET_SECCOMP = 22
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_KEEP_CAPABILITIES = 1 << 2
"""SECBIT_NO_SETUID_FIXUP: capabilities stay when the user changes."""
_CLONE_VM = 0x100
_WALL = 0x40000000
_STACK = 64 << 10

_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_SYS_MOUNT_SETATTR = 442
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}[os.uname().machine]

_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_OPEN_TREE_CLONE = 1
_OPEN_TREE_CLOEXEC = os.O_CLOEXEC
_MOUNT_ATTR_IDMAP = 0x00100000
_MOVE_MOUNT_F_EMPTY_PATH = 4

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def setns(fd: int, kinds: int) -> None:
    _check(_libc.setns(fd, kinds), "setns")


def unshare(kinds: int) -> None:
    _check(_libc.unshare(kinds), "unshare")


def mount(
    source: str, target: str, kind: str = "", flags: int = 0, options: str | bytes = ""
) -> None:
    data = options.encode() if isinstance(options, str) else options
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        data or None,
    )
    _check(result, f"mount {kind or 'bind'} on {target}")


def umount(target: str, flags: int = 0) -> None:
    _check(_libc.umount2(target.encode(), flags), f"umount {target}")


def mount_bind(source: str, target: str, attributes: int, user_namespace: int = -1) -> None:
    """Bind-mount `source` at `target` with these attributes, which apply from the start.

    If a user namespace is given, its mapping shifts the owners.
    """
    tree = bound_tree(source, attributes, user_namespace)
    try:
        attach_tree(tree, target)
    finally:
        os.close(tree)


def bound_tree(source: str, attributes: int, user_namespace: int = -1) -> int:
    """Return a descriptor of a detached mount of `source` with these attributes and owners."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC
    tree = _check(
        _libc.syscall(_SYS_OPEN_TREE, _AT_FDCWD, source.encode(), flags), f"open_tree {source}"
    )
    try:
        shifted = user_namespace >= 0
        wanted = attributes | (_MOUNT_ATTR_IDMAP if shifted else 0)
        changes = struct.pack("=QQQQ", wanted, 0, 0, user_namespace if shifted else 0)
        _check(
            _libc.syscall(_SYS_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, changes, len(changes)),
            f"mount_setattr {source}",
        )
    except OSError:
        os.close(tree)
        raise
    return tree


def attach_tree(tree: int, target: str) -> None:
    """Attach a detached mount in the mount namespace of the caller."""
    arguments = (tree, b"", _AT_FDCWD, target.encode(), _MOVE_MOUNT_F_EMPTY_PATH)
    _check(_libc.syscall(_SYS_MOVE_MOUNT, *arguments), f"move_mount {target}")


@contextlib.contextmanager
def waiting_in_user_namespace(owner: int) -> Iterator[int]:
    """Run a process that only waits, in a new user namespace that belongs to `owner`.

    The process shares our memory and runs only pause(2), so nothing has to be copied.
    """
    stack = ctypes.create_string_buffer(_STACK)
    top = (ctypes.addressof(stack) + _STACK) & ~0xF
    waits = ctypes.cast(_libc.pause, ctypes.c_void_p)
    # Keep all capabilities: some hosts restrict user namespaces to privileged processes.
    _check(_libc.prctl(_PR_SET_SECUREBITS, _KEEP_CAPABILITIES, 0, 0, 0), "prctl securebits")
    try:
        os.setresuid(-1, owner, -1)
        child = _libc.clone(waits, ctypes.c_void_p(top), CLONE_NEWUSER | _CLONE_VM, None)
    finally:
        os.setresuid(-1, 0, -1)
        _check(_libc.prctl(_PR_SET_SECUREBITS, 0, 0, 0, 0), "prctl securebits")
    _check(child, "clone into a user namespace")
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, _WALL)


def set_dumpable(on: bool) -> None:
    _check(_libc.prctl(_PR_SET_DUMPABLE, int(on), 0, 0, 0), "prctl dumpable")


def set_child_subreaper() -> None:
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl subreaper")


def set_death_signal(number: int) -> None:
    """Have the kernel send this signal to the process when its parent ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0), "prctl pdeathsig")


def set_no_new_privs() -> None:
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl no_new_privs")


def drop_bounding(keep: Iterable[int]) -> None:
    """Take every capability not kept out of the bounding set."""
    kept = set(keep)
    for capability in range(64):
        if capability in kept:
            continue
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            return  # EINVAL: beyond the last capability this kernel knows


def set_capabilities(keep: Iterable[int]) -> None:
    """Effective and permitted become exactly `keep`, inheritable becomes empty."""
    mask = sum(1 << capability for capability in keep)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = struct.pack("=Ii", 0x20080522, 0)
    data = struct.pack("=IIIIII", low, low, 0, high, high, 0)
    _check(_libc.syscall(_SYS_CAPSET, header, data), "capset")


def set_title(title: str) -> None:
    """What `ps` shows of this process and of its forks, instead of a command line of the host's."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = title.encode()[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))
    _check(_libc.prctl(_PR_SET_NAME, text[:15], 0, 0, 0), "prctl name")


class _SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def load_seccomp(program: bytes) -> None:
    """Install a compiled filter on this process; it cannot be taken off again."""
    filters = _SockFprog(len(program) // 8, program)
    _check(
        _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filters), 0, 0),
        "load the seccomp filter",
    )
