"""Answers: tables for people, JSON for programs."""

import json
import time
from collections.abc import Iterable, Sequence

import click

_NAMED = 5


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
    """A name of a sandbox's may hold anything; a terminal is not to obey it."""
    return text if text.isprintable() else ascii(text)


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
