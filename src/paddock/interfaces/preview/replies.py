"""An answer of the front itself, as bytes."""

from email.utils import formatdate
from http import HTTPStatus

from paddock.interfaces.preview.contract import Reply

_SET_HERE = frozenset({b"content-length", b"connection", b"transfer-encoding", b"date"})


def render(reply: Reply, ending: bytes = b"", *, head_only: bool = False) -> bytes:
    """`ending` are the lines about the connection; HEAD gets the length but not the body."""
    lines = [
        b"%b: %b\r\n" % header for header in reply.headers if header[0].lower() not in _SET_HERE
    ]
    has_body = reply.status >= 200 and reply.status not in (204, 304)
    if has_body:
        lines.append(b"Content-Length: %d\r\n" % len(reply.body))
    return b"HTTP/1.1 %d %b\r\nDate: %b\r\n%b%b\r\n%b" % (
        reply.status,
        _phrase(reply.status),
        formatdate(usegmt=True).encode(),
        b"".join(lines),
        ending,
        reply.body if has_body and not head_only else b"",
    )


def _phrase(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""
