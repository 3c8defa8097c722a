"""The name in the first message of TLS, read by OpenSSL itself rather than by a parser of ours."""

import ssl
from collections.abc import Callable
from functools import cache
from typing import Any

LARGEST = 65536
Check = Callable[[str], bool]
"""Whether the name (empty when none was sent) may be spoken to."""


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


class ClientHello:
    """Fed with what a client sends, until the name is known."""

    def __init__(self, check: Check) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        reading: Any = _context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        reading.check = check
        self._reading = reading

    def feed(self, data: bytes) -> bool | None:
        """Whether it may go on; None while more is needed."""
        self._incoming.write(data)
        try:
            self._reading.do_handshake()
        except ssl.SSLWantReadError:
            return None
        except (ssl.SSLError, OSError):
            return bool(self._reading.asked and self._reading.allowed)
        return False

    def refusal(self) -> bytes:
        """The fatal alert that tells the client so."""
        return self._outgoing.read()
