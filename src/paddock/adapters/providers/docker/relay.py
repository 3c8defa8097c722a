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
        self.source = source
        self.sink = sink
        self.streams: dict[int, Stream] = {}
        self.arrived = bytearray()
        self.outgoing = bytearray()
        self.selector = selectors.DefaultSelector()
        os.set_blocking(source, False)
        os.set_blocking(sink, False)

    def run(self) -> None:
        """Until the other end closes its side."""
        self.selector.register(self.source, selectors.EVENT_READ, None)
        while True:
            self.watch()
            for key, mask in self.selector.select():
                if key.fd == self.source:
                    if not self.take_frames():
                        return
                elif key.fd == self.sink:
                    self.flush()
                elif key.data.number in self.streams:
                    self.serve(key.data, mask)

    def watch(self) -> None:
        """Ask to be woken for exactly what could be done now."""
        self.want(self.sink, selectors.EVENT_WRITE if self.outgoing else 0, None)
        full = len(self.outgoing) > _OUT_HIGH
        for stream in self.streams.values():
            mask = 0
            if not stream.connected or stream.pending:
                mask |= selectors.EVENT_WRITE
            if stream.connected and stream.credit > 0 and not stream.read_to_end and not full:
                mask |= selectors.EVENT_READ
            self.want(stream.connection, mask, stream)

    def want(self, what: int | socket.socket, mask: int, data: Stream | None) -> None:
        known = self.selector.get_map().get(what)
        if known is None:
            if mask:
                self.selector.register(what, mask, data)
        elif not mask:
            self.selector.unregister(what)
        elif known.events != mask:
            self.selector.modify(what, mask, data)

    def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        self.outgoing += HEADER.pack(kind, number, len(payload)) + payload

    def flush(self) -> None:
        try:
            del self.outgoing[: os.write(self.sink, self.outgoing[:CHUNK])]
        except BlockingIOError:
            return

    def take_frames(self) -> bool:
        try:
            data = os.read(self.source, CHUNK)
        except BlockingIOError:
            return True
        self.arrived += data
        while len(self.arrived) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self.arrived)
            if len(self.arrived) < HEADER.size + length:
                break
            payload = bytes(self.arrived[HEADER.size : HEADER.size + length])
            del self.arrived[: HEADER.size + length]
            self.obey(kind, number, payload)
        return bool(data)

    def obey(self, kind: int, number: int, payload: bytes) -> None:
        if kind == OPEN:
            self.open(number, payload.decode())
            return
        stream = self.streams.get(number)
        if stream is None:
            return
        if kind == DATA:
            stream.pending += payload
        elif kind == END:
            stream.ending = True
            if stream.connected:
                self.serve(stream, selectors.EVENT_WRITE)
        elif kind == CREDIT:
            stream.credit += NUMBER.unpack(payload)[0]
        elif kind == CLOSE:
            self.drop(stream)

    def open(self, number: int, target: str) -> None:
        kind, _, place = target.partition(":")
        family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)
        stream = self.streams[number] = Stream(number, connection)
        result = connection.connect_ex(place if kind == "unix" else ("127.0.0.1", int(place)))
        if result == 0:
            stream.connected = True
        elif result != errno.EINPROGRESS:
            self.close(stream, os.strerror(result))

    def serve(self, stream: Stream, mask: int) -> None:
        try:
            if not stream.connected:
                result = stream.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if result:
                    raise OSError(result, os.strerror(result))
                stream.connected = True
            if mask & selectors.EVENT_WRITE:
                self.push(stream)
            if mask & selectors.EVENT_READ and stream.number in self.streams:
                self.pull(stream)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(stream, error.strerror or "broken")

    def push(self, stream: Stream) -> None:
        if stream.pending:
            sent = stream.connection.send(stream.pending)
            del stream.pending[:sent]
            self.send(CREDIT, stream.number, NUMBER.pack(sent))
        if stream.ending and stream.connected and not stream.pending:
            stream.connection.shutdown(socket.SHUT_WR)
            stream.ending = False

    def pull(self, stream: Stream) -> None:
        data = stream.connection.recv(min(CHUNK, stream.credit))
        if data:
            stream.credit -= len(data)
            self.send(DATA, stream.number, data)
        else:
            stream.read_to_end = True
            self.send(END, stream.number)

    def close(self, stream: Stream, why: str) -> None:
        self.send(CLOSE, stream.number, why.encode())
        self.drop(stream)

    def drop(self, stream: Stream) -> None:
        self.want(stream.connection, 0, stream)
        self.streams.pop(stream.number, None)
        stream.connection.close()


if __name__ == "__main__":
    Relay(0, 1).run()
