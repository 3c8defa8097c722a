"""Answers: tables for people, JSON for programs."""

import json
import re
import time
import unicodedata
from collections.abc import Iterable, Sequence

import click

_NAMED = 5
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_UNSAFE = ("Cc", "Cs", "Zl", "Zp")
"""Categories of Unicode that a terminal obeys or cannot show: controls, surrogates, separators."""
_TURNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the direction of what follows, and so hide it."""


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as their widest cell, two spaces between them."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def age(moment: float, now: float | None = None) -> str:
    """How long ago, in the largest unit that fits."""
    seconds = max(0, int((time.time() if now is None else now) - moment))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def printable(text: str) -> str:
    """The text with colours removed and control characters escaped; tabs stay.

    A sandbox chooses this text, so that a terminal must not obey it.
    """
    if text.isprintable():
        return text
    return "".join(map(_escaped, _COLOURS.sub("", text)))


def _escaped(char: str) -> str:
    if char == "\t" or not (char in _TURNS or unicodedata.category(char) in _UNSAFE):
        return char
    return char.encode("unicode_escape").decode()


def tell_left_out(paths: Sequence[str], count: int, freed: int) -> None:
    """What rules have left out of a snapshot, beside the answer: work is not missed later."""
    if not count:
        return
    shown = [printable(path) for path in paths[:_NAMED]]
    if count > len(shown):
        shown.append(f"and {count - len(shown)} more")
    click.echo(
        f"left out by the template's rules, {size(freed)}: {', '.join(shown)}\n"
        "--everything keeps these too",
        err=True,
    )


def size(count: int | None) -> str:
    """Bytes as people say them."""
    if count is None:
        return "–"
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
