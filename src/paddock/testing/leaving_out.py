"""How the simulated provider leaves paths out of a copy of a sandbox's disk."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from paddock.domain.ignoring import MOST_SHOWN, LeftOut, Rule


def leave_out(copy: Path, inside: Path, rules: Iterable[Rule]) -> LeftOut:
    """Of a copy of the directory that has the path `inside` to the sandbox."""
    found: list[str] = []
    freed = 0
    for rule in rules:
        for entry in met(copy, inside, rule):
            freed += size(entry)
            remove(entry)
            found.append(str(Path("/", *rule.parent, entry.name)))
    return LeftOut(tuple(found[:MOST_SHOWN]), len(found), freed)


def met(copy: Path, inside: Path, rule: Rule) -> list[Path]:
    """What the rule means; nothing where a link is in the way, or beside the disk."""
    directory = Path("/", *rule.parent)
    if not directory.is_relative_to(inside):
        return []
    place = copy.resolve() / directory.relative_to(inside)
    if place.resolve() != place or not place.is_dir():
        return []
    return sorted(entry for entry in place.iterdir() if rule.meets(entry.name))


def size(entry: Path) -> int:
    inner = entry.rglob("*") if entry.is_dir() and not entry.is_symlink() else ()
    return sum(path.lstat().st_size for path in (entry, *inner))


def remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()
