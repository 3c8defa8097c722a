"""The forms in which a value may turn up again: as it is, and as programs write it elsewhere."""

import base64
import html
import json
from collections.abc import Iterator, Sequence

from paddock.domain.egress.names import LONGEST

SHORTEST = 6
"""What is shorter is in every text, and no secret."""
_SHORTEST_IN_NAMES = 10
"""Of what is there as it is: names of hosts are made of words."""
_IN_URLS = ("-_.~", "-_.~/", "-_.~!'()*", "-_.*", "-_.", "-_.~;,/?:@&=+$#!'()*")
"""What encoders leave as it is, beside letters and digits."""
_ALPHANUMERIC = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_LETTERS = bytes(sorted(_ALPHANUMERIC)).decode()
_OTHERS = bytes(each for each in range(256) if each not in _ALPHANUMERIC)
_OF_SCRIPTS = ("", "&<>", "&<>'", "&<>'\"", "&<>'=", "&<>'+`\"")
"""What is escaped in JSON that may stand in a page, by one library or another."""


def forms(value: bytes) -> Sequence[bytes]:
    """Return the value unchanged, in UTF-16, escaped for URLs, JSON and HTML, as numeric bytes, and
    in base64 (also twice) and base32 at any offset of a longer text. Forms that are too short to be
    recognised are left out."""
    text = value.decode("utf-8", "replace")
    found = [value, *(each.encode() for each in (*_in_json(text), *_in_html(text)))]
    found += _in_urls(value)
    found += _in_utf16(text)
    found += _in_numbers(value)
    once = list(_in_base64(value))
    found += [*once, *(twice for each in dict.fromkeys(once) for twice in _in_base64(each))]
    found += [cased for each in _in_base32(value) for cased in (each, each.lower())]
    return [each for each in dict.fromkeys(found) if len(each) >= SHORTEST]


def in_names(value: bytes) -> Sequence[str]:
    """What is left of it in the name of a host, where only letters and digits are sure to come
    through, of either case: as it is, in hexadecimal, in base64 and in base32. None of what has no
    room in a name."""
    plain = _folded(value)
    if len(plain) > LONGEST:
        return []  # nor has it in any other form, all of which are longer
    said = (value.hex().encode(), *_in_base64(value), *_in_base32(value))
    found = [_folded(each) for each in said]
    if len(plain) >= _SHORTEST_IN_NAMES:
        found.append(plain)
    return [each.decode() for each in dict.fromkeys(found) if SHORTEST <= len(each) <= LONGEST]


def _folded(text: bytes) -> bytes:
    return text.translate(None, _OTHERS).lower()


def _in_json(text: str) -> Iterator[str]:
    """Slashes may be escaped or not, and so may what means something in a page; digits of escapes
    are of either case."""
    for ascii_only in (True, False):
        plain = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        for special in _OF_SCRIPTS:
            said = plain
            for each in special:
                written = json.dumps(each)[1:-1]
                said = said.replace(written, f"\\u{ord(each):04x}")
            for made in (said, said.replace("/", "\\/")):
                yield made
                yield _upper_escapes(made)
    codes = [unit for each in text for unit in _units(ord(each))]
    yield "".join(f"\\u{code:04x}" for code in codes)
    yield "".join(f"\\u{code:04X}" for code in codes)


def _units(code: int) -> tuple[int, ...]:
    """In JSON what is beyond the first plane is two. No codec is asked: the gateway has no files to
    load one from."""
    if code < 0x10000:
        return (code,)
    return 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF)


def _upper_escapes(said: str) -> str:
    """Of `\\u00e9`, but not of a backslash that is one, before a u."""
    parts = said.split("\\\\")
    return "\\\\".join(_upper_in(part) for part in parts)


def _upper_in(part: str) -> str:
    first, *rest = part.split("\\u")
    return first + "".join(f"\\u{each[:4].upper()}{each[4:]}" for each in rest)


def _in_urls(value: bytes) -> Iterator[bytes]:
    for kept in (frozenset[int](), *(_ALPHANUMERIC | set(safe.encode()) for safe in _IN_URLS)):
        for digits in (b"%%%02X", b"%%%02x"):
            parts = [bytes((each,)) if each in kept else digits % each for each in value]
            yield b"".join(parts)
            yield b"".join(b"+" if part == b"%20" else part for part in parts)


def _in_html(text: str) -> Iterator[str]:
    yield html.escape(text, quote=False)
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for single in ("'", "&#x27;", "&#39;", "&#039;", "&apos;"):
        for double in ("&quot;", "&#34;", "&#x22;"):
            said = plain.replace("'", single).replace('"', double)
            yield said
            yield said.replace("/", "&#x2F;").replace("`", "&#x60;").replace("=", "&#x3D;")

    for number in ("&#{:d};", "&#{:03d};", "&#x{:x};", "&#x{:X};"):
        for kept in ("", _LETTERS, f"{_LETTERS},.-_ "):
            escaped = {ord(each): number.format(ord(each)) for each in set(text) - set(kept)}
            yield text.translate(escaped)


def _in_utf16(text: str) -> Iterator[bytes]:
    units = [unit for each in text for unit in _units(ord(each))]
    yield b"".join(unit.to_bytes(2, "little") for unit in units)
    yield b"".join(unit.to_bytes(2, "big") for unit in units)


def _in_numbers(value: bytes) -> Iterator[bytes]:
    """Yield the bytes as numbers, as in hex dumps and lists."""
    spaced = value.hex(" ")
    for digits in (spaced, spaced.upper()):
        for between in ("", " ", ":", "-", ", 0x", ",0x", " 0x", "\\x"):
            yield digits.replace(" ", between).encode()
    decimal = " ".join(map(str, value))
    for between in (" ", ",", ", "):
        yield decimal.replace(" ", between).encode()


def _in_base64(value: bytes) -> Iterator[bytes]:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for lead in range(3):
            # What depends on the neighbours, at both ends, is not part of it.
            first = (lead * 8 + 5) // 6
            last = (lead + len(value)) * 8 // 6
            yield encode(bytes(lead) + value)[first:last]


def _in_base32(value: bytes) -> Iterator[bytes]:
    for lead in range(5):
        first = (lead * 8 + 4) // 5
        last = (lead + len(value)) * 8 // 5
        yield base64.b32encode(bytes(lead) + value)[first:last]
