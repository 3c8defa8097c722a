"""Sockets in another network namespace: a socket stays where it was made, whoever holds it."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from paddock.adapters.providers.host import syscalls
from paddock.adapters.providers.host.processes import Process

_T = TypeVar("_T")


@contextmanager
def opened(process: Process) -> Iterator[int]:
    """A descriptor of the network namespace of a process in a sandbox.

    ProcessLookupError when that process has ended, whoever has its number now; PermissionError for
    the network of the host itself, which nothing may ever be done to in a sandbox's name.
    """
    with process.opened():
        descriptor = os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not process.alive():  # what was opened may then be another's
                raise ProcessLookupError(f"process {process.pid} has ended")
            if _is_the_hosts(descriptor):
                raise PermissionError(f"process {process.pid} is in the host's own network")
            yield descriptor
        finally:
            os.close(descriptor)


def _is_the_hosts(namespace: int) -> bool:
    """Whether it is the one this process lives in, or the first process of the host."""
    for pid in ("self", 1):
        with suppress(PermissionError):  # not even root may look at the first process everywhere
            if os.path.samestat(os.fstat(namespace), os.stat(f"/proc/{pid}/ns/net")):
                return True
    return False


async def within(process: Process, action: Callable[[], _T]) -> _T:
    """Do something quick in the network namespace of a process, as `opened` gives it.

    A thread enters it and ends there: nothing else of this process ever leaves its own.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()
    threading.Thread(target=_enter_and_do, args=(process, action, loop, done), daemon=True).start()
    try:
        return await done
    except asyncio.CancelledError:
        if done.done() and not done.cancelled() and done.exception() is None:
            _drop(done.result())  # it came at the same moment
        raise


def _enter_and_do(
    process: Process,
    action: Callable[[], _T],
    loop: asyncio.AbstractEventLoop,
    done: "asyncio.Future[_T]",
) -> None:
    try:
        with opened(process) as descriptor:
            syscalls.setns(descriptor, syscalls.CLONE_NEWNET)
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
    else:
        _drop(result)


def _drop(result: object) -> None:
    """Nobody waits for it any more."""
    for each in result if isinstance(result, list) else [result]:
        if isinstance(each, socket.socket):
            each.close()


async def listen(process: Process, host: str, port: int, backlog: int = 128) -> socket.socket:
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

    return await within(process, action)


async def connect(process: Process, host: str, port: int) -> socket.socket:
    """A connection to a port inside, as if made by a program of the sandbox."""

    def action() -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)
        return connection

    connection = await within(process, action)
    try:
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
    except BaseException:
        connection.close()
        raise
    return connection
