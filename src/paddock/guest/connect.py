"""Connect RPC with the JSON codec: unary calls, server streams and client streams."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import struct
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from typing import Any, Callable

from .body import Congestion
from .errors import GuestError, from_os_error, invalid
from .http import Exchange
from .state import GuestState
from .users import Account

UNARY_LIMIT = 4 << 20
INPUT_LIMIT = 16 << 20  # of calls that carry input for a program
FRAME_LIMIT = 4 << 20
FILES_AS_ROOT = "x-paddock-files-as-root"
"""Set by the control plane for clients of E2B, whose envd acts on files as root."""
_STREAM_TYPE = "application/connect+json"
_DEFAULT_KEEPALIVE = 90.0
_END = 2

Message = dict[str, Any]

_encoder = json.JSONEncoder(separators=(",", ":"))


def dump(message: Any) -> bytes:
    """ASCII with escapes, so that names which are not UTF-8 survive as lone surrogates."""
    return _encoder.encode(message).encode("ascii")


def load(data: bytes) -> Message:
    if not data:
        return {}
    try:
        message = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise invalid(f"the request is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise invalid("the request must be a JSON object")
    return message


class Call:
    """One RPC: what was asked, by whom, and how long the caller will wait."""

    def __init__(self, state: GuestState, exchange: Exchange) -> None:
        self.state = state
        self.exchange = exchange

    @property
    def account(self) -> Account:
        """The user named by HTTP Basic; the default user where none is."""
        return self.state.account(_basic_user(self.exchange.headers.get("authorization", "")))

    def file_accounts(self, account: Account) -> tuple[Account, ...]:
        """Accounts whose rights are tried for file access, in order."""
        if self.exchange.headers.get(FILES_AS_ROOT) != "true" or os.geteuid() != 0:
            return (account,)
        return account, replace(account, as_root=True)

    @property
    def timeout(self) -> float | None:
        text = self.exchange.headers.get("connect-timeout-ms", "")
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > 10:
            raise invalid(f"connect-timeout-ms is {text!r}; it must be up to 10 digits")
        return int(text) / 1000 or None

    @property
    def keepalive(self) -> float:
        text = self.exchange.headers.get("keepalive-ping-interval", "")
        usable = text.isascii() and text.isdigit() and len(text) < 6 and int(text) > 0
        return float(text) if usable else _DEFAULT_KEEPALIVE


Unary = Callable[[Call, Message], Awaitable[Message]]


class Stream:
    """A server stream being answered."""

    def __init__(self, call: Call, keepalive: Message | None = None) -> None:
        self._exchange = call.exchange
        self._keepalive = keepalive
        self._interval = call.keepalive
        self._loop = asyncio.get_running_loop()
        self._last_sent = self._loop.time()
        self._timer = self._loop.call_later(self._interval, self._on_idle) if keepalive else None
        self._exchange.start_response(200, ("content-type", _STREAM_TYPE))

    @property
    def congestion(self) -> Congestion:
        return self._exchange.congestion

    @property
    def is_connected(self) -> bool:
        return self._exchange.is_connected

    def send(self, message: Message) -> None:
        self._last_sent = self._loop.time()
        self._exchange.write(_frame(0, dump(message)))

    async def drain(self) -> None:
        await self._exchange.drain()

    def end(self, error: GuestError | None = None) -> None:
        body: Message = {} if error is None else {"error": error.as_dict()}
        self._exchange.write(_frame(_END, dump(body)))
        self._exchange.end_response()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _on_idle(self) -> None:
        if not self.is_connected or self._keepalive is None:
            return
        due = self._last_sent + self._interval
        if due <= self._loop.time():
            self.send(self._keepalive)
            due = self._last_sent + self._interval
        self._timer = self._loop.call_at(due, self._on_idle)


ServerStream = Callable[[Call, Message, "StreamOpener"], Awaitable[None]]


class StreamOpener:
    """Opens the stream when the call is known to be good, so that errors before it stay plain."""

    def __init__(self, call: Call, keepalive: Message | None) -> None:
        self._call = call
        self._keepalive = keepalive
        self.stream: Stream | None = None

    def open(self) -> Stream:
        self.stream = Stream(self._call, self._keepalive)
        return self.stream


def unary(method: Unary, limit: int = UNARY_LIMIT) -> Callable[[Call], Awaitable[None]]:
    async def handle(call: Call) -> None:
        try:
            message = load(await call.exchange.read_all(limit))
            answer = await method(call, message)
        except GuestError as error:
            refuse(call.exchange, error)
            return
        except OSError as error:
            refuse(call.exchange, from_os_error(error, "the guest's own files"))
            return
        call.exchange.respond(200, dump(answer), ("content-type", "application/json"))

    return handle


def server_stream(
    method: ServerStream, keepalive: Message | None = None
) -> Callable[[Call], Awaitable[None]]:
    async def handle(call: Call) -> None:
        opener = StreamOpener(call, keepalive)
        call.state.streams += 1
        failure: GuestError | None = None
        task = asyncio.current_task()
        assert task is not None
        call.exchange.on_disconnect = task.cancel
        try:
            message = await _single_message(call.exchange)
            await method(call, message, opener)
        except GuestError as error:
            failure = error
        finally:
            call.state.streams -= 1
            if opener.stream is not None:
                opener.stream.close()
        stream = opener.stream or opener.open()
        stream.end(failure)
        stream.close()

    return handle


async def frames(exchange: Exchange) -> AsyncIterator[Message]:
    """The messages of a client stream, one at a time."""
    buffer = bytearray()
    while True:
        while len(buffer) >= 5:
            flags, length = struct.unpack_from(">BI", buffer)
            if length > FRAME_LIMIT:
                raise GuestError(
                    "resource_exhausted",
                    f"a frame of {length} bytes; at most {FRAME_LIMIT} are taken",
                )
            if len(buffer) < 5 + length:
                break
            body = bytes(buffer[5 : 5 + length])
            del buffer[: 5 + length]
            if flags & _END:
                return
            if flags:
                raise invalid(f"a frame with flags {flags}; compression is not supported")
            yield load(body)
        data = await exchange.read()
        if not data:
            if buffer:
                raise invalid("the stream ended within a frame")
            return
        buffer += data


async def _single_message(exchange: Exchange) -> Message:
    """The one message that asks for a server stream; the bare JSON of a unary call will do too."""
    if exchange.headers.get("content-type", "").split(";")[0].strip() == "application/json":
        return load(await exchange.read_all(FRAME_LIMIT))
    async for message in frames(exchange):
        return message
    raise invalid("the request holds no message")


def refuse(exchange: Exchange, error: GuestError) -> None:
    exchange.respond(error.status, dump(error.as_dict()), ("content-type", "application/json"))


def _frame(flags: int, body: bytes) -> bytes:
    return struct.pack(">BI", flags, len(body)) + body


def _basic_user(authorization: str) -> str:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True)
        return decoded.decode("utf-8").partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        raise GuestError("unauthenticated", "the Authorization header is not HTTP Basic") from None
