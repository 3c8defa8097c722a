"""What the kernel knows of a connection that no event tells of."""

import asyncio
import socket
import struct

_CLOSED = 7
"""TCP_CLOSE, the first byte of `struct tcp_info`."""


def is_reset(connection: socket.socket) -> bool:
    """Whether the peer has answered with a reset. Nothing else ends a connection that we have not
    closed ourselves, and of one that is read no more no event would tell."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        found = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        return True
    return found[0] == _CLOSED


def end_with_reset(transport: asyncio.Transport) -> None:
    """Make close() send a TCP reset, so that the peer sees an incomplete response."""
    connected = transport.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
