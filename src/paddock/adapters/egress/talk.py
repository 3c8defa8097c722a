"""One question to a gateway, and its answer."""

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

from paddock.domain.errors import Unavailable
from paddock.gateway import protocol
from paddock.gateway.protocol import Channel, Message

_ANSWER_S = 10.0


async def exchanged(
    channel: Channel, said: Message, sockets: Sequence[socket.socket] = ()
) -> protocol.Anything:
    try:
        async with asyncio.timeout(_ANSWER_S):
            await channel.send(said, sockets)
            return (await channel.receive())[0]
    except TimeoutError as error:
        raise Unavailable(f"the egress gateway did not answer for {_ANSWER_S:.0f} s") from error


def connection(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        made.connect(str(path))
    except OSError:
        made.close()
        raise
    return made
