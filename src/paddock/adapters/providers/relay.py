"""Runs inside a sandbox with a packed guest: many connections over one pair of pipes.

Sent there as text and started by the image's own Python 3.9 or newer, so it uses the standard
library alone and knows nothing of the rest. The other end is `tunnel`. Every frame is a kind, a
stream's number and a payload; whoever has sent a window's worth of data on a stream waits until the
other side gives credit, so that one slow reader holds up neither the others nor the memory.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct

HEADER = struct.Struct(">BII")
OPEN, DATA, END, CLOSE, CREDIT = range(1, 6)
NUMBER = struct.Struct(">I")
WINDOW = 1 << 18
CHUNK = 1 << 16
_OUT_HIGH = 1 << 20


class Stream:
    """One connection to something in the sandbox."""

    def __init__(self, number: int, connection: socket.socket) -> None:
        self.number = number
        self.connection = connection
        self.connected = False
        self.pending = bytearray()
        self.ending = False
        self.read_to_end = False
        self.credit = WINDOW


class Relay:
    """Single-threaded: one selector, one stdin, one stdout."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._streams: dict[int, Stream] = {}
        self._arrived = bytearray()
        self._outgoing = bytearray()
        self._selector = selectors.DefaultSelector()
        os.set_blocking(source, False)
        os.set_blocking(sink, False)

    def run(self) -> None:
        """Until the other end closes its side."""
        self._selector.register(self._source, selectors.EVENT_READ, None)
        while True:
            self._watch()
            if not all(self._attend(key, mask) for key, mask in self._selector.select()):
                return

    def _attend(self, key: selectors.SelectorKey, mask: int) -> bool:
        """False when there is nothing left to wait for."""
        if key.fd == self._source:
            return self._take_frames()
        if key.fd == self._sink:
            self._flush()
        elif key.data.number in self._streams:
            self._serve(key.data, mask)
        return True

    def _watch(self) -> None:
        """Ask to be woken for exactly what could be done now."""
        self._want(self._sink, selectors.EVENT_WRITE if self._outgoing else 0, None)
        full = len(self._outgoing) > _OUT_HIGH
        for stream in self._streams.values():
            mask = 0
            if not stream.connected or stream.pending:
                mask |= selectors.EVENT_WRITE
            if stream.connected and stream.credit > 0 and not stream.read_to_end and not full:
                mask |= selectors.EVENT_READ
            self._want(stream.connection, mask, stream)

    def _want(self, what: int | socket.socket, mask: int, data: Stream | None) -> None:
        known = self._selector.get_map().get(what)
        if known is None:
            if mask:
                self._selector.register(what, mask, data)
        elif not mask:
            self._selector.unregister(what)
        elif known.events != mask:
            self._selector.modify(what, mask, data)

    def _send(self, kind: int, number: int, payload: bytes = b"") -> None:
        self._outgoing += HEADER.pack(kind, number, len(payload)) + payload

    def _flush(self) -> None:
        try:
            del self._outgoing[: os.write(self._sink, self._outgoing[:CHUNK])]
        except BlockingIOError:
            return

    def _take_frames(self) -> bool:
        try:
            data = os.read(self._source, CHUNK)
        except BlockingIOError:
            return True
        self._arrived += data
        while len(self._arrived) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self._arrived)
            if len(self._arrived) < HEADER.size + length:
                break
            payload = bytes(self._arrived[HEADER.size : HEADER.size + length])
            del self._arrived[: HEADER.size + length]
            self._obey(kind, number, payload)
        return bool(data)

    def _obey(self, kind: int, number: int, payload: bytes) -> None:
        if kind == OPEN:
            self._open(number, payload.decode())
            return
        stream = self._streams.get(number)
        if stream is None:
            return
        if kind == DATA:
            stream.pending += payload
        elif kind == END:
            stream.ending = True
            if stream.connected:
                self._serve(stream, selectors.EVENT_WRITE)
        elif kind == CREDIT:
            stream.credit += NUMBER.unpack(payload)[0]
        elif kind == CLOSE:
            self._drop(stream)

    def _open(self, number: int, target: str) -> None:
        kind, _, place = target.partition(":")
        family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)
        stream = self._streams[number] = Stream(number, connection)
        result = connection.connect_ex(place if kind == "unix" else ("127.0.0.1", int(place)))
        if result == 0:
            stream.connected = True
        elif result != errno.EINPROGRESS:
            self._close(stream, os.strerror(result))

    def _serve(self, stream: Stream, mask: int) -> None:
        try:
            if not stream.connected:
                result = stream.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if result:
                    raise OSError(result, os.strerror(result))
                stream.connected = True
            if mask & selectors.EVENT_WRITE:
                self._push(stream)
            if mask & selectors.EVENT_READ and stream.number in self._streams:
                self._pull(stream)
        except BlockingIOError:
            return
        except OSError as error:
            self._close(stream, error.strerror or "broken")

    def _push(self, stream: Stream) -> None:
        if stream.pending:
            sent = stream.connection.send(stream.pending)
            del stream.pending[:sent]
            self._send(CREDIT, stream.number, NUMBER.pack(sent))
        if stream.ending and stream.connected and not stream.pending:
            stream.connection.shutdown(socket.SHUT_WR)
            stream.ending = False

    def _pull(self, stream: Stream) -> None:
        data = stream.connection.recv(min(CHUNK, stream.credit))
        if data:
            stream.credit -= len(data)
            self._send(DATA, stream.number, data)
        else:
            stream.read_to_end = True
            self._send(END, stream.number)

    def _close(self, stream: Stream, why: str) -> None:
        self._send(CLOSE, stream.number, why.encode())
        self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        self._want(stream.connection, 0, stream)
        self._streams.pop(stream.number, None)
        stream.connection.close()


if __name__ == "__main__":
    Relay(0, 1).run()
