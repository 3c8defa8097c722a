"""What a chat that streams has taken: asked for in the client's stead, and kept from it then."""

from typing import Any

import msgspec

from paddock.gateway.bounds import Illegible
from paddock.gateway.metering import Meter

_OPTIONS = "stream_options"
_MOST_HELD = 1 << 20


def with_usage(body: bytes) -> bytes | None:
    """A request for a chat, changed so that its stream ends with its usage; None where it need not
    be: it does not stream, asks itself, or is nothing that a server would answer. Illegible for
    what cannot be read."""
    try:
        said = msgspec.json.decode(body or b"{}", type=dict[str, msgspec.Raw])
        streams, options = _read(said.get("stream")), _read(said.get(_OPTIONS)) or {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Illegible(str(error)) from error
    if not streams:
        return None
    if not isinstance(options, dict) or options.get("include_usage") is True:
        return None
    told = msgspec.Raw(msgspec.json.encode({**options, "include_usage": True}))
    return msgspec.json.encode({**said, _OPTIONS: told})


def _read(raw: msgspec.Raw | None) -> Any:
    return msgspec.json.decode(raw) if raw is not None else None


class Shown:
    """What the client gets of an answer that is counted.

    `hides` the piece with the usage and no choices, which is sent only to who asks for it: many
    clients look for the first choice of every piece.
    """

    def __init__(self, meter: Meter, *, hides: bool) -> None:
        self._meter = meter
        self._hides = hides
        self._held = b""
        self._is_hiding = False
        """The line before was left out, and so is the empty one that ends it."""

    def feed(self, data: bytes) -> bytes:
        self._meter.feed(data)
        if not self._hides:
            return data
        *lines, self._held = (self._held + data).split(b"\n")
        shown = b"".join(line + b"\n" for line in lines if not self._is_hidden(line))
        if len(self._held) > _MOST_HELD:
            shown, self._held = shown + self._held, b""
        return shown

    def end(self) -> bytes:
        self._meter.end()
        held, self._held = self._held, b""
        return b"" if self._is_hidden(held) else held

    def _is_hidden(self, line: bytes) -> bool:
        if self._is_hiding and not line.strip():
            self._is_hiding = False
            return True
        self._is_hiding = line.startswith(b"data:") and b'"usage"' in line and _is_usage(line[5:])
        return self._is_hiding


def _is_usage(data: bytes) -> bool:
    try:
        said = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    is_bare = isinstance(said, dict) and said.get("choices") == []
    return is_bare and isinstance(said.get("usage"), dict)
