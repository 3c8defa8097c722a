"""The query of a URL, byte for byte. urllib would cost half a megabyte of a guest's memory."""

from __future__ import annotations

from binascii import unhexlify


def parse_query(query: str) -> dict[str, str]:
    """Names and values; of a name that is repeated the first counts."""
    found: dict[str, str] = {}
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        found.setdefault(unquote(name.replace("+", " ")), unquote(value.replace("+", " ")))
    return found


def unquote(text: str) -> str:
    """Percent-decoded; a `%` without two hexadecimal digits stands for itself."""
    first, *rest = text.encode("latin-1", "replace").split(b"%")
    pieces = [first]
    for piece in rest:
        try:
            pieces += [unhexlify(piece[:2]) or b"%", piece[2:]]
        except ValueError:
            pieces.append(b"%" + piece)
    return b"".join(pieces).decode("utf-8", "surrogateescape")
