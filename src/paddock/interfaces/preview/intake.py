"""What comes from a client: heads, bodies, and what was sent ahead of its time."""

import asyncio
from enum import Enum, auto

from paddock.interfaces.preview.bodies import Body
from paddock.interfaces.preview.config import FrontConfig
from paddock.interfaces.preview.heads import END, HeadBuffer
from paddock.interfaces.preview.request import check_beginning


class Due(Enum):
    """What the next bytes are."""

    HEAD = auto()
    BODY = auto()
    NEXT = auto()
    """The request is complete; what comes belongs to the next one, or to another protocol."""
    NOTHING = auto()
    """Whatever comes is thrown away."""


_HEAD, _BODY, _NEXT, _NOTHING = Due


class Intake:
    """Sorts a client's bytes, and stops reading when they come faster than they go.

    What cannot be used yet (a pipelined request, a body before its upstream is found, early data
    of an upgrade) is held: at most one read's worth, because nothing is read while something is.
    """

    transport: asyncio.Transport

    def __init__(self, config: FrontConfig) -> None:
        self.due = _HEAD
        self.held = b""
        self.is_blocked = False
        """The upstream does not take more for now."""
        self._config = config
        self._head = HeadBuffer()
        self._body: Body | None = None
        self._is_reading = True

    @property
    def is_empty(self) -> bool:
        """Nothing of a next request has come."""
        return self.due is _HEAD and not self.held and not self._head.held

    @property
    def has_begun_head(self) -> bool:
        return bool(self._head.held)

    def head(self, data: bytes) -> bytes | None:
        """A whole head, as soon as it is there. Raises Refusal for what cannot become one."""
        known = len(self._head.held)
        if not known:
            if data.endswith(END) and data[0] > 0x20 and data.find(END) + 4 == len(data):
                return data
            # Some clients send an empty line after a body that nobody expects.
            data = data.lstrip(b"\r\n")
            if not data:
                return None
        found = self._head.add(data)
        if found is None:
            check_beginning(self._head.held, known, self._config)
            return None
        head, self.held = found
        return head

    def expect(self, body: Body | None) -> None:
        """After a head: its body, if it has one."""
        self._body = body
        self.due = _NEXT if body is None else _BODY
        if self.held:
            self._update()

    def body(self, data: bytes) -> bytes:
        """Those of the bytes that belong to the body; the others are held. Raises Refusal."""
        body = self._body
        if body is None:
            self.hold(data)
            return b""
        end = body.take(data)
        if body.done:
            self._body = None
            self.due = _NEXT
            self.hold(data[end:])
        return data if end == len(data) else data[:end]

    def hold(self, data: bytes) -> None:
        if data:
            self.held += data
            self._update()

    def take_held(self) -> bytes:
        """What was held; reading goes on."""
        held, self.held = self.held, b""
        self._update()
        return held

    def block(self, *, blocked: bool) -> None:
        self.is_blocked = blocked
        self._update()

    def start_over(self) -> None:
        """On to the next head."""
        self.due = _HEAD
        self.is_blocked = False
        if not self._is_reading:
            self._update()

    def discard(self) -> None:
        """Throw away what was held and what comes."""
        self.due, self.held, self.is_blocked = _NOTHING, b"", False
        self._update()

    def _update(self) -> None:
        wanted = not self.held and not self.is_blocked
        if wanted is self._is_reading or self.transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()
