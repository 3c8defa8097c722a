"""One HTTP request to a port of a sandbox, whichever way its endpoint has to be reached."""

import asyncio
import concurrent.futures
import ctypes
import http.client
import os
import socket
import threading
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from paddock.ports.provider import Endpoint

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000


async def get(endpoint: Endpoint, path: str = "/", patience_s: float = 5.0) -> tuple[int, bytes]:
    """Status and body. Raises OSError where nobody answers."""
    headers = dict(endpoint.headers)
    if endpoint.netns_pid is not None:
        pid = endpoint.netns_pid
        return await _in_own_thread(lambda: _get_in_namespace(pid, endpoint, path, patience_s))
    if endpoint.socket:
        return await _in_own_thread(lambda: _get_by_socket(endpoint, path, patience_s))
    url = urlsplit(endpoint.url)
    make = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = make(url.netloc, timeout=patience_s)
    return await _in_own_thread(lambda: _get(connection, url.path.rstrip("/") + path, headers))


def _get_by_socket(endpoint: Endpoint, path: str, patience_s: float) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("localhost", endpoint.port, timeout=patience_s)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(patience_s)
    try:
        connection.sock.connect(endpoint.socket)
    except OSError:
        connection.close()
        raise
    return _get(connection, path, dict(endpoint.headers))


def _get_in_namespace(
    pid: int, endpoint: Endpoint, path: str, patience_s: float
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=patience_s)
    enter_network_of(pid)
    connection.sock = socket.create_connection(("127.0.0.1", endpoint.port), patience_s)
    return _get(connection, path, dict(endpoint.headers))


def _get(
    connection: http.client.HTTPConnection, path: str, headers: dict[str, str]
) -> tuple[int, bytes]:
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"no proper answer over HTTP: {error!r}") from error
    finally:
        connection.close()


def enter_network_of(pid: int) -> None:
    """The calling thread, and it alone, moves into the network namespace of a process."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns into the network of {pid}: {os.strerror(number)}")
    finally:
        os.close(descriptor)


async def _in_own_thread(work: Callable[[], T]) -> T:
    """Not in a pool: a thread that has changed its network must not be used for anything else."""
    done: concurrent.futures.Future[T] = concurrent.futures.Future()

    def body() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - handed to the one who waits
            done.set_exception(error)

    threading.Thread(target=body, daemon=True).start()
    return await asyncio.wrap_future(done)
