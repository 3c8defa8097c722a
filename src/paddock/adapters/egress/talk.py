"""One question to a gateway, and its answer."""

import asyncio
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from paddock.domain.errors import Unavailable
from paddock.gateway import protocol
from paddock.gateway.protocol import Channel, Message

_ANSWER_S = 10.0
_CONNECT_S = 2.0
_PAUSE_S = 0.05


async def exchanged(
    channel: Channel,
    said: Message,
    sockets: Sequence[socket.socket] = (),
    *,
    within_s: float = _ANSWER_S,
) -> protocol.Anything:
    try:
        async with asyncio.timeout(within_s):
            await channel.send(said, sockets)
            return (await channel.receive())[0]
    except TimeoutError as error:
        raise Unavailable(f"the egress gateway did not answer for {within_s:.0f} s") from error


def connection(path: Path, within_s: float = _CONNECT_S) -> socket.socket:
    """Unavailable where somebody is there and lets nobody in: the queue of one that hangs is full
    at some time, and a plain connect would wait for it for ever."""
    until = time.monotonic() + within_s
    while True:
        try:
            return _connected(path)
        except BlockingIOError as error:
            if time.monotonic() >= until:
                raise Unavailable("the egress gateway lets nobody in") from error
        time.sleep(_PAUSE_S)


def _connected(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.setblocking(False)
    try:
        made.connect(str(path))
    except OSError:
        made.close()
        raise
    return made
