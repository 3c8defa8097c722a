"""Sockets in another network namespace: a socket stays where it was made, whoever holds it."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from typing import TypeVar

from paddock.adapters.providers.host import syscalls

_T = TypeVar("_T")


async def within(pid: int, action: Callable[[], _T]) -> _T:
    """Do something quick in the network namespace of a process.

    A thread enters it and ends there: nothing else of this process ever leaves its own.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()
    threading.Thread(target=_enter_and_do, args=(pid, action, loop, done), daemon=True).start()
    return await done


def _enter_and_do(
    pid: int,
    action: Callable[[], _T],
    loop: asyncio.AbstractEventLoop,
    done: "asyncio.Future[_T]",
) -> None:
    try:
        descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            syscalls.setns(descriptor, syscalls.CLONE_NEWNET)
        finally:
            os.close(descriptor)
        result = action()
    except BaseException as error:  # noqa: BLE001 - carried to whoever waits
        loop.call_soon_threadsafe(_fail, done, error)
    else:
        loop.call_soon_threadsafe(_succeed, done, result)


def _fail(done: "asyncio.Future[_T]", error: BaseException) -> None:
    if not done.cancelled():
        done.set_exception(error)


def _succeed(done: "asyncio.Future[_T]", result: _T) -> None:
    if not done.cancelled():
        done.set_result(result)
    elif isinstance(result, socket.socket):
        result.close()


async def listen(pid: int, host: str, port: int, backlog: int = 128) -> socket.socket:
    """A listening socket that the sandbox sees on its own network."""

    def action() -> socket.socket:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(backlog)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        return listener

    return await within(pid, action)


async def connect(pid: int, host: str, port: int) -> socket.socket:
    """A connection to a port inside, as if made by a program of the sandbox."""

    def action() -> socket.socket:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        return connection

    connection = await within(pid, action)
    try:
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
    except BaseException:
        connection.close()
        raise
    return connection
