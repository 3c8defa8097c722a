"""The only name server that a sandbox can ask. It asks nobody itself.

One question with one plain name is all that resolvers send and all that is read here: what differs
from that form is refused, so nothing of a packet but a name that rules know ever matters.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from paddock.domain.egress import names

A, AAAA, ANY = 1, 28, 255
_IN = 1
_RESPONSE, _RECURSION_DESIRED, _RECURSION_AVAILABLE = 0x8000, 0x0100, 0x0080
_NOERROR, _FORMERR, _NXDOMAIN, _NOTIMP = 0, 1, 3, 4
_TTL_S = 60
_POINTER_TO_QUESTION = 0xC00C

Find = Callable[[str], str]
"""The address for a name; empty when there is no such name."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the bytes in which it was."""

    id: int
    flags: int
    name: str
    kind: int
    raw: bytes


def answer(packet: bytes, find: Find) -> bytes:
    """The packet to answer with; empty for what is not even a question."""
    if len(packet) < 12:
        return b""
    number, flags = struct.unpack_from("!HH", packet)
    if flags & _RESPONSE:
        return b""
    question = read(packet)
    if question is None:
        code = _NOTIMP if flags & 0x7800 else _FORMERR
        return struct.pack("!6H", number, _flags(flags, code), 0, 0, 0, 0)
    address = find(question.name) if question.name else ""
    if not address:
        return _packet(question, _NXDOMAIN)
    if question.kind not in (A, ANY):
        return _packet(question, _NOERROR)
    record = struct.pack("!HHHIH", _POINTER_TO_QUESTION, A, _IN, _TTL_S, 4)
    return _packet(question, _NOERROR, record + bytes(map(int, address.split("."))))


def read(packet: bytes) -> Question | None:
    """The question, if the packet is one ordinary question."""
    number, flags, questions, answers, authorities, _ = struct.unpack_from("!6H", packet)
    if flags & 0x7800 or (questions, answers, authorities) != (1, 0, 0):
        return None
    labels, at = [], 12
    while at < len(packet) and (length := packet[at]):
        if length > 63:
            return None
        labels.append(packet[at + 1 : at + 1 + length])
        at += 1 + length
    if at + 5 > len(packet) or at - 12 > names.LONGEST + 1:
        return None
    kind, space = struct.unpack_from("!HH", packet, at + 1)
    if space != _IN:
        return None
    name = names.normal(b".".join(labels).decode("ascii", "replace"))
    return Question(number, flags, name, kind, packet[12 : at + 5])


def _packet(question: Question, code: int, record: bytes = b"") -> bytes:
    header = struct.pack(
        "!6H", question.id, _flags(question.flags, code), 1, 1 if record else 0, 0, 0
    )
    return header + question.raw + record


def _flags(asked: int, code: int) -> int:
    return _RESPONSE | _RECURSION_AVAILABLE | asked & _RECURSION_DESIRED | code
