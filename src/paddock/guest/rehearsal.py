"""A dress rehearsal: the zygote serves a few requests before it forks its first guest.

Code that has run is specialised by the interpreter in place, caches are filled and types are made
ready. Done once before the fork, all of that is shared by every guest instead of being written,
page by page, into each one's own memory; and a guest's first command is as quick as its second.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket

from .config import GuestConfig
from .removal import remove_now
from .server import Server

_ROUNDS = 12  # an instruction is specialised after eight runs


def rehearse(directory: str) -> None:
    """Leaves nothing behind but warm code. The directory is made, used and removed."""
    os.makedirs(directory, 0o700, exist_ok=True)
    path = f"{directory}/socket"
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            config = GuestConfig(sandbox_id="rehearsal", user="root", state_dir=directory)
            asyncio.run(_play(Server(config, listener), path))
    finally:
        remove_now(directory)


async def _play(server: Server, path: str) -> None:
    serving = asyncio.ensure_future(server.run())
    reader, writer = await asyncio.open_unix_connection(path)
    for _ in range(_ROUNDS):
        await _ask(reader, writer, b"GET /health", b"")
        await _ask(reader, writer, b"POST /init", b'{"envVars": {}}')
        command = json.dumps({"cmd": ["/bin/true"], "cwd": "/"}).encode()
        await _ask(reader, writer, b"POST /paddock.Guest/Exec", command)
    writer.close()
    server.stop()
    await serving


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, body: bytes
) -> None:
    head = b"%s HTTP/1.1\r\nHost: guest\r\nContent-Type: application/json\r\nContent-Length: %d"
    writer.write(head % (request, len(body)) + b"\r\n\r\n" + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = answer.partition(b"content-length:")[2].split(b"\r\n")[0].strip()
    await reader.readexactly(int(length or b"0"))
