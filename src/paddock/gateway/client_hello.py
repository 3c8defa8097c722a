"""The name in the first message of TLS, read by OpenSSL itself rather than by a parser of ours.

TLS stacks differ in what they tolerate around that message: alerts before it, records of other
kinds between its parts, empty records. What one stack skips, another may read. So the records are
parsed strictly, and only a ClientHello in the form that all stacks agree on is accepted.
"""

import ssl
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

LARGEST = 65536
Check = Callable[[str], bool]
"""Whether the name (empty when none was sent) may be spoken to."""

_CHANGE_CIPHER_SPEC, _ALERT, _HANDSHAKE, _APPLICATION_DATA = 0x14, 0x15, 0x16, 0x17
_LARGEST_RECORD = 1 << 14
_LARGEST_SEALED = _LARGEST_RECORD + 2048
_HELLO = b"\1"
_ACCESS_DENIED = bytes((_ALERT, 3, 3, 0, 2, 2, ssl.ALERT_DESCRIPTION_ACCESS_DENIED))
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random of a ServerHello that asks for another ClientHello (RFC 8446, 4.1.3)."""


class _Reading(ssl.SSLObject):
    check: Check
    asked: bool = False
    allowed: bool = False


@cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _Reading
    context.sni_callback = _on_name
    return context


def _on_name(reading: Any, name: str | None, _context: ssl.SSLContext) -> int:
    reading.asked, reading.allowed = True, reading.check(name or "")
    # Whatever is returned, this handshake goes no further: the real one is with the real host.
    return ssl.ALERT_DESCRIPTION_ACCESS_DENIED


class _Unreadable(Exception):
    """Not a ClientHello, or one that some TLS stack might parse differently."""


class ClientHello:
    """Fed with what a client sends, until the name is known.

    A second ClientHello, which the server asked for, may follow the records that TLS 1.3 allows
    before it: an empty ChangeCipherSpec, and early data that the server has rejected.
    """

    def __init__(self, check: Check, *, is_second: bool = False) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        reading: Any = _context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        reading.check = check
        self._reading = reading
        self._unread = bytearray()
        self._message = bytearray()
        self.is_second = is_second
        self._before = (_CHANGE_CIPHER_SPEC, _APPLICATION_DATA) if is_second else ()
        self.size = 0
        """The size in bytes of its records and of those before it."""

    def feed(self, data: bytes) -> bool | None:
        """Whether the connection may continue; None while more is needed. Ignores what follows."""
        self._unread += data
        try:
            is_whole = self._read_records()
        except _Unreadable:
            return False
        return self._judged() if is_whole else None

    def _read_records(self) -> bool:
        """Whether the message is complete. It has to end at the end of a record."""
        while self._unread:
            kind, size = self._unread[0], int.from_bytes(self._unread[3:5], "big")
            if kind != _HANDSHAKE and (self._message or kind not in self._before):
                raise _Unreadable
            if len(self._unread) < 5:
                break
            largest = _LARGEST_SEALED if kind == _APPLICATION_DATA else _LARGEST_RECORD
            total = self.size + 5 + size
            if self._unread[1] != 3 or not 0 < size <= largest or total > LARGEST:
                raise _Unreadable
            if len(self._unread) < 5 + size:
                break
            record = bytes(self._unread[: 5 + size])
            del self._unread[: 5 + size]
            self.size = total
            if kind == _HANDSHAKE and self._ends_with(record):
                return True
        return False

    def _ends_with(self, record: bytes) -> bool:
        self._incoming.write(record)
        self._message += record[5:]
        length = int.from_bytes(self._message[1:4], "big")
        is_too_long = len(self._message) >= 4 and len(self._message) > 4 + length
        if not self._message.startswith(_HELLO) or is_too_long or length > LARGEST:
            raise _Unreadable
        return len(self._message) == 4 + length

    def _judged(self) -> bool:
        # A name that is not ASCII reaches no check, and would be a traceback in the log each time.
        hook, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
        try:
            self._reading.do_handshake()
        except (ssl.SSLError, OSError):
            return bool(self._reading.asked and self._reading.allowed)
        finally:
            sys.unraisablehook = hook
        return False

    def refusal(self) -> bytes:
        """The fatal alert that tells the client so."""
        return self._outgoing.read() or _ACCESS_DENIED


def is_retried(answer: bytes) -> bool | None:
    """Whether a server's first bytes ask for another ClientHello, whose name then counts; None
    while more is needed."""
    message, at = b"", 0
    while at + 5 <= len(answer) <= LARGEST:
        kind, size = answer[at], int.from_bytes(answer[at + 3 : at + 5], "big")
        if kind == _HANDSHAKE:
            message += answer[at + 5 : at + 5 + size]
            if len(message) >= 38:
                return message[0] == 2 and message[6:38] == _RETRY
        elif kind not in (_ALERT, _CHANGE_CIPHER_SPEC):
            return False
        at += 5 + size
    return None if len(answer) <= LARGEST else False
