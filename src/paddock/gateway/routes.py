"""Asks the kernel's routing table whether an address belongs to this host."""

import errno
import ipaddress
import socket
import struct

_RTM_GETROUTE, _REQUEST, _ERROR = 26, 1, 2
_RTA_DST = 1
_LOCAL, _BROADCAST, _ANYCAST = 2, 3, 4
_UNROUTED = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EAFNOSUPPORT, errno.EINVAL, errno.EACCES)
"""Errors for addresses without a route, or with a prohibited one: no connection is made."""


def ends_here(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether a connection to the address would end on this host.

    The kernel is asked each time, because addresses come and go. It treats a connection the same
    way, so addresses that are routed here without belonging to an interface count too. If it
    gives no answer, the address counts as this host's, which most rules do not open.
    """
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    route = struct.pack("=8BI", family, address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
    route += struct.pack("=HH", 4 + len(address.packed), _RTA_DST) + address.packed
    header = struct.pack("=IHHII", 16 + len(route), _RTM_GETROUTE, _REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(header + route)
        answer = kernel.recv(8192)
    if struct.unpack_from("=H", answer, 4)[0] == _ERROR:
        return -struct.unpack_from("=i", answer, 16)[0] not in _UNROUTED
    return answer[16 + 7] in (_LOCAL, _BROADCAST, _ANYCAST)
