"""What people write on a command line, as values: sizes, times, variables, copies."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from paddock.interfaces.cli.failures import refuse

_SIZE = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?)?", re.IGNORECASE)
_MIB = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)", re.IGNORECASE)
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]+")


class Size(click.ParamType[int]):
    """`512m`, `2g`; a plain number is in MiB, like everywhere in the API."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if not (match := _SIZE.fullmatch(value.strip())):
            self.fail(f"{value!r} is no size; write 512m or 2g", param, ctx)
        mib = float(match[1]) * _MIB[(match[2] or "m").lower()]
        if not math.isfinite(mib) or mib != int(mib):
            self.fail(f"{value!r} is no whole number of MiB; write 512m or 2g", param, ctx)
        return int(mib)


class Name(click.ParamType[str]):
    """A name that is not empty: `--sandbox "$BOX"` without a BOX is a mistake, not a default."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not str(value).strip():
            self.fail("it is empty; give a name, or leave the option out", param, ctx)
        return str(value)


class Seconds(click.ParamType[float]):
    """`90`, `90s`, `5m`, `2h`, `7d`."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, int | float):
            return float(value)
        if not (match := _TIME.fullmatch(value.strip())):
            self.fail(f"{value!r} is no time; write 90s, 5m or 2h", param, ctx)
        seconds = float(match[1]) * _SECONDS[match[2].lower()]
        if not 0 < seconds < math.inf:
            self.fail(f"{value!r} is not more than 0", param, ctx)
        return seconds


class Number(click.ParamType[float]):
    """A finite number: `nan` passes every comparison of a limit."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


@dataclass(frozen=True, slots=True)
class Copy:
    """A file or directory of this machine, and where it goes in the sandbox."""

    source: Path
    target: str


class CopyPair(click.ParamType[Copy]):
    """`SRC:DST`; the last colon divides, because a path of this machine may have one."""

    name = "SRC:DST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Copy:
        if isinstance(value, Copy):
            return value
        source, colon, target = value.rpartition(":")
        if not colon or not source or not target:
            self.fail(f"{value!r} is not SRC:DST, such as ./src:/home/user/src", param, ctx)
        if not Path(source).exists():
            self.fail(f"{source} does not exist on this machine", param, ctx)
        return Copy(Path(source), target)


def pairs(given: Iterable[str], option: str) -> dict[str, str]:
    """NAME=VALUE as often as it was given; the last one counts."""
    return dict(_pair(text, option) for text in given)


def environment(given: Iterable[str], files: Iterable[Path] = ()) -> dict[str, str]:
    """Variables from files, then those given one by one. Values may be secret: none is shown."""
    env: dict[str, str] = {}
    for file in files:
        for number, line in enumerate(_lines(file), 1):
            text = line.strip().removeprefix("export ").lstrip()
            if text and not text.startswith("#"):
                env |= [_pair(text, f"{file}:{number}", unquote=True)]
    return env | pairs(given, "--env")


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().split("\n")
    except OSError as error:
        refuse(f"--env-file: {file} cannot be read: {error.strerror}", "name a readable file")
    except UnicodeDecodeError:
        refuse(f"--env-file: {file} is not UTF-8 text", "save it as text, one NAME=VALUE per line")


def _pair(text: str, place: str, *, unquote: bool = False) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name = name.strip() if unquote else name
    if not equals or not name:
        what = name if name.isidentifier() else f"an entry of {len(text)} characters"
        refuse(f"{place}: {what} is not NAME=VALUE", "write the name, `=` and the value")
    if unquote and len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return name, value


def argument_vector(words: tuple[str, ...]) -> list[str]:
    """The program and its arguments, as they are.

    One argument that is more than a word, such as 'make && make test', goes to the sandbox's
    shell: no program has such a name.
    """
    if len(words) == 1 and not _PLAIN_WORD.fullmatch(words[0]):
        return ["/bin/sh", "-c", words[0]]
    return list(words)
