"""TLS towards a client whose connection was already read from: its transport, as plain bytes."""

import ssl
from contextlib import suppress
from typing import Any

_LARGEST_READ = 262144


class Encrypted:
    """Stands for the client's transport. What comes in is given to `decrypted`."""

    def __init__(self, transport: Any, context: ssl.SSLContext) -> None:
        self._transport = transport
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_agreed = False
        self._early: list[bytes] = []
        """What is to be said once both sides have agreed on keys."""
        self._ends = False
        self.ended = False
        """The client will send nothing more."""

    def decrypted(self, data: bytes) -> bytes:
        """What the client has said. ssl.SSLError ends the connection."""
        self._incoming.write(data)
        try:
            if not self.is_agreed:
                self._tls.do_handshake()
                self._agree()
            return self._read()
        except ssl.SSLWantReadError:
            return b""
        finally:
            self._flush()

    def _agree(self) -> None:
        self.is_agreed = True
        early, self._early = self._early, []
        for each in early:
            self._tls.write(each)
        if self._ends:
            self.write_eof()

    def _read(self) -> bytes:
        found = []
        try:
            while data := self._tls.read(_LARGEST_READ):
                found.append(data)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return b"".join(found)

    def _flush(self) -> None:
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def write(self, data: bytes) -> None:
        if not data:
            return
        if not self.is_agreed:
            self._early.append(data)
            return
        self._tls.write(data)
        self._flush()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """The end, said in TLS first: a client must be able to tell it from a cut."""
        self._ends = True
        if not self.is_agreed:
            return
        with suppress(ssl.SSLError):  # the client's own end need not be waited for
            self._tls.unwrap()
        self._flush()
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        if not self._transport.is_closing():
            self.write_eof()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return bool(self._transport.is_closing())

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str) -> Any:
        return self._transport.get_extra_info(name)
