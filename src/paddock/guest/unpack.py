"""Unpack: a tar becomes files once all of it has come, and nothing of it is ever seen before."""

from __future__ import annotations

import base64
import os
from collections.abc import Awaitable
from typing import Callable

from . import paths, rights
from .connect import Call, dump
from .environment import decode
from .errors import from_os_error, invalid
from .process import Process
from .query import parse_query
from .state import GuestState
from .users import Account

_LONGEST_S = 3600.0
_PIECE = 256 << 10
_SAID = 4096
_JSON = ("content-type", "application/json")


def methods(state: GuestState) -> dict[str, Callable[[Call], Awaitable[None]]]:
    return {"POST /paddock.Guest/Unpack": unpack}


async def unpack(call: Call) -> None:
    """Into the directory of the query. The answer is how `tar` ended.

    It waits in a file without a name, so that whoever is killed when, nothing of it stays; and
    when it has come as a whole, it is unpacked as a whole, though the sender be gone by then.
    """
    query = parse_query(call.exchange.query)
    account = call.state.account(query.get("username", ""))
    if not query.get("path"):
        raise invalid("the path in the query is missing")
    directory = call.state.absolute(query["path"], account)
    try:
        with rights.of(account):
            spool = _open_nameless(directory)
        try:
            await _receive(call, spool)
            answer = await _run(call.state, account, directory, spool)
        finally:
            os.close(spool)
    except OSError as error:
        raise from_os_error(error, decode(directory)) from None
    if call.exchange.is_connected:
        call.exchange.respond(200, dump(answer), _JSON)


async def _receive(call: Call, spool: int) -> None:
    while True:
        data = await call.exchange.read()
        if not data:
            return
        _write_all(spool, data)


async def _run(
    state: GuestState, account: Account, directory: bytes, spool: int
) -> dict[str, object]:
    said = bytearray()

    def hear(_stream: str, data: bytes) -> None:
        said.extend(data[: _SAID - len(said)])

    argv = ["tar", "-xof", "-", "-C", decode(directory)]
    command = state.command(argv, account=account, env={}, cwd="/", stdin=True)
    process = Process(state, command, hear, _LONGEST_S)
    feeding = state.tasks.start(_feed(process, spool))
    ending = await process.done
    feeding.cancel()
    return {
        "exitCode": ending.exit_code,
        "reason": ending.reason,
        "stderr": base64.b64encode(said).decode("ascii"),
    }


async def _feed(process: Process, spool: int) -> None:
    assert process.stdin is not None
    at = 0
    try:
        while True:
            data = os.pread(spool, _PIECE, at)
            if not data:
                break
            at += len(data)
            await process.stdin.write(data)
    except OSError:
        return  # it stopped reading, which is its right
    process.stdin.close()


def _open_nameless(directory: bytes) -> int:
    try:
        return paths.open_path(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:
        # The file system may know no files without a name; or this is none to write in at all.
        name = os.path.join(directory, b".paddock-" + os.urandom(8).hex().encode())
        fd = paths.open_path(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(name)
        return fd


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
