"""`ssh -L`: a connection to a port inside the sandbox, and nowhere else."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncssh
from asyncssh.stream import SSHTCPStreamSession

from paddock.domain.errors import PaddockError
from paddock.services.ssh_access import Admitted
from paddock.services.ssh_visits import SshVisits

_PIECE = 64 << 10
_OWN = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::", "")  # noqa: S104 - names, not addresses
Handler = Callable[["asyncssh.SSHReader[bytes]", "asyncssh.SSHWriter[bytes]"], Awaitable[None]]


def check_destination(admitted: Admitted, host: str, port: int) -> None:
    """What is meant has to be the sandbox itself: beyond it, egress has the say."""
    own = (*_OWN, admitted.sandbox.name, admitted.sandbox.id)
    if host.lower().strip("[]") not in own:
        raise asyncssh.ChannelOpenError(
            asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED,
            f"only the sandbox's own ports can be reached, as localhost:PORT; not {host[:80]}",
        )
    if not 0 < port < 65536:
        raise asyncssh.ChannelOpenError(
            asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, f"{port} is no port"
        )


async def forwarded(
    visits: SshVisits, admitted: Admitted, port: int
) -> "asyncssh.SSHTCPSession[bytes]":
    """The channel to the port; refused when nobody listens there."""
    try:
        connection = await visits.connect(admitted, port, lambda _: None)
        await visits.note(admitted, "ssh.forward", port=port)
    except PaddockError as error:
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, error.message) from error
    except OSError as error:
        raise asyncssh.ChannelOpenError(
            asyncssh.OPEN_CONNECT_FAILED, f"nobody listens on port {port} in the sandbox"
        ) from error
    return SSHTCPStreamSession(_carrying(connection))


def _carrying(connection: socket.socket) -> Handler:
    async def carry(
        reader: "asyncssh.SSHReader[bytes]", writer: "asyncssh.SSHWriter[bytes]"
    ) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(sock=connection)
        try:
            with suppress(OSError, asyncssh.Error):
                async with asyncio.TaskGroup() as group:
                    group.create_task(_inwards(reader, inner_writer))
                    group.create_task(_outwards(inner_reader, writer))
        except* (OSError, asyncssh.Error):
            pass  # one side has gone, which ends both
        finally:
            inner_writer.close()
            writer.close()

    return carry


async def _inwards(reader: "asyncssh.SSHReader[bytes]", writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def _outwards(reader: asyncio.StreamReader, writer: "asyncssh.SSHWriter[bytes]") -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
