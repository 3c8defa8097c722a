"""Where a database is: a path or a URL, and how errors name it."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from paddock.domain.errors import InvalidRequest

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")
_POSTGRES = frozenset({"postgres", "postgresql", "postgresql+asyncpg"})


@dataclass(frozen=True, slots=True)
class File:
    """An SQLite database."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class Server:
    """A PostgreSQL database."""

    dsn: str = field(repr=False)

    def __str__(self) -> str:
        """Without password and options."""
        parts = urlsplit(self.dsn)
        user, at, host = parts.netloc.rpartition("@")
        return f"postgresql://{user.partition(':')[0]}{at}{host}{parts.path}"


def parse(place: str | Path) -> File | Server:
    if isinstance(place, Path):
        return File(place.absolute())
    match = _SCHEME.match(place)
    if match is None and place and not place.startswith(":"):
        return File(Path(place).expanduser().absolute())
    scheme = match[1] if match else ""
    if match and scheme in _POSTGRES:
        return Server(f"postgresql://{place[match.end() :]}")
    if match and scheme == "sqlite" and (path := place[match.end() :].removeprefix("/")):
        return File(Path(path).absolute())
    shown = f"{scheme}://…" if scheme else repr(place)
    raise InvalidRequest(
        f"{shown} is no place for the database",
        remediation="give the path of an SQLite file, or postgresql://USER:PASSWORD@HOST/DATABASE",
    )
