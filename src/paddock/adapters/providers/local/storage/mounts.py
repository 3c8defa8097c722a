"""Which file system holds a path, in this mount namespace and in others."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of a mountinfo file."""

    device: str
    root: str
    point: str
    kind: str
    source: str
    options: str
    attributes: frozenset[str] = frozenset()
    """Attributes such as `ro` and `nosuid`, of this mount and not of the file system."""


def mount_of(path: Path) -> Mount:
    """The mount that the path lies on."""
    wanted = os.path.realpath(path)
    holding = [m for m in mounts() if _lies_in(wanted, m.point)]
    # Of mounts stacked on one point the last one is seen.
    return max(enumerate(holding), key=lambda pair: (len(pair[1].point), pair[0]))[1]


def mounts(pid: str = "self") -> list[Mount]:
    lines = Path(f"/proc/{pid}/mountinfo").read_text(errors="surrogateescape").splitlines()
    return [_parse(line) for line in lines]


def mounts_everywhere() -> list[Mount]:
    """The mounts of every mount namespace in which a process lives that we may look at."""
    seen: set[str] = set()
    found: list[Mount] = []
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):  # noqa: PTH208
        try:
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")  # noqa: PTH115
            if namespace not in seen:
                found += mounts(pid)
                seen.add(namespace)
        except OSError:
            continue  # it ended meanwhile, or is hidden from us
    return found


def _lies_in(path: str, point: str) -> bool:
    return point in ("/", path) or path.startswith(point + "/")


def _parse(line: str) -> Mount:
    before, _, after = line.partition(" - ")
    fields, tail = before.split(" "), after.split(" ")
    return Mount(
        device=fields[2],
        root=_plain(fields[3]),
        point=_plain(fields[4]),
        kind=tail[0],
        source=_plain(tail[1]),
        options=_plain(tail[2]),
        attributes=frozenset(fields[5].split(",")),
    )


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
