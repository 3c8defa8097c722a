"""A route and an address in the calling thread's network namespace, by messages to the kernel."""

import errno
import fcntl
import os
import socket
import struct

_RTM_NEWADDR, _RTM_DELADDR, _RTM_NEWROUTE, _RTM_DELROUTE = 20, 21, 24, 25
_REQUEST, _ACK, _CREATE = 1, 4, 0x400
_ERROR = 2
_IFA_ADDRESS, _IFA_LOCAL, _RTA_OIF = 1, 2, 4
_TABLE_MAIN, _PROTOCOL_STATIC, _SCOPE_HOST, _TYPE_LOCAL = 254, 4, 254, 2
_LOOPBACK = 1
"""The index that `lo` has in every network namespace."""


def raise_loopback() -> None:
    """Bring `lo` up; a fresh network namespace has it down, and not every runtime cares."""
    request = struct.pack("16sh", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, request + bytes(24 - len(request)))  # SIOCSIFFLAGS


def keep_everything_here(address: str) -> None:
    """Every IPv4 address is this namespace's own: nothing that is sent leaves it.

    It is given `address` beside that of loopback: the C library looks up no names of IPv4 hosts for
    programs that ask as most do (AI_ADDRCONFIG) where there is no other.
    """
    _change(_RTM_NEWROUTE, _route(), flags=_CREATE, already=errno.EEXIST)
    _change(_RTM_NEWADDR, _address(address), flags=_CREATE, already=errno.EEXIST)


def forget_everything(address: str) -> None:
    """There is no way to anywhere but loopback. Absent is success."""
    _change(_RTM_DELADDR, _address(address), already=errno.EADDRNOTAVAIL)
    _change(_RTM_DELROUTE, _route(), already=errno.ESRCH)


def _route() -> bytes:
    route = struct.pack(
        "=8BI", socket.AF_INET, 0, 0, 0, _TABLE_MAIN, _PROTOCOL_STATIC, _SCOPE_HOST, _TYPE_LOCAL, 0
    )
    return route + struct.pack("=HHi", 8, _RTA_OIF, _LOOPBACK)


def _address(text: str) -> bytes:
    number = socket.inet_aton(text)
    head = struct.pack("=4BI", socket.AF_INET, 32, 0, 0, _LOOPBACK)
    return head + b"".join(
        struct.pack("=HH4s", 8, kind, number) for kind in (_IFA_LOCAL, _IFA_ADDRESS)
    )


def _change(kind: int, body: bytes, *, flags: int = 0, already: int) -> None:
    header = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(header + body)
        answer = kernel.recv(4096)
    said, code = struct.unpack_from("=4xH10xi", answer)
    if said == _ERROR and -code not in (0, already):
        raise OSError(-code, f"the network of a sandbox: {os.strerror(-code)}")
