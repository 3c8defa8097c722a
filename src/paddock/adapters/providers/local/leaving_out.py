"""How a template's rules leave something out of the copy of a disk that a snapshot is."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISCHR

from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.storage.trees import empty_out, move_out, tree_bytes
from paddock.domain.ignoring import MOST_SHOWN, LeftOut, Rule

_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


def leave_out(volume: Path, rules: Sequence[Rule]) -> LeftOut:
    """Of a copy that nobody else can reach yet; a failure leaves a copy that is good for nothing.

    What is met is moved out of the overlay's upper directory before it is measured and removed, so
    that however much there is, two programs see to all of it. What the template itself has at a
    path is in a layer below, and shows again.
    """
    found: list[str] = []
    with explained(volume):
        trash = volume / f".left-out-{os.urandom(4).hex()}"
        trash.mkdir(mode=0o700)
        for rule in rules:
            found += _set_aside(volume / "upper", rule, trash)
        size = tree_bytes(trash) - trash.lstat().st_blocks * 512 if found else 0
        empty_out(trash)
    return LeftOut(tuple(found[:MOST_SHOWN]), len(found), size)


def takes_all(volume: Path, rules: Sequence[Rule], places: Sequence[str]) -> bool:
    """Whether something is in one of the places, and by the rules nothing of it would remain.

    What rules name letter by letter may be all that there is; patterns may not meet all the rest.
    """
    with explained(volume):
        return any(_takes_all(volume / "upper", rules, place) for place in places)


def _takes_all(upper: Path, rules: Sequence[Rule], place: str) -> bool:
    parts = tuple(part for part in place.split("/") if part)
    directory = descend(upper, parts)
    if directory is None:
        return False
    try:
        there = [name for name in _names(directory) if _holds(directory, name)]
    finally:
        os.close(directory)
    if there and any(rule.covers(place) for rule in rules):
        return True
    here = [rule for rule in rules if rule.parent == parts]
    named = {rule.name for rule in here if not rule.is_pattern}
    rest = [name for name in there if name not in named]
    return bool(rest) and all(any(rule.meets(name) for rule in here) for name in rest)


def _set_aside(upper: Path, rule: Rule, trash: Path) -> list[str]:
    directory = descend(upper, rule.parent)
    if directory is None:
        return []
    try:
        names = _met(directory, rule)
        for name in names:
            move_out(name, directory, trash / os.urandom(8).hex())
    finally:
        os.close(directory)
    return [_shown(rule, name) for name in names]


def descend(top: Path, parts: Sequence[str]) -> int | None:
    """The directory, part by part and along no link; None when it is not there."""
    directory = os.open(top, _ENTER)
    for part in parts:
        outer = directory
        try:
            directory = os.open(part, _ENTER, dir_fd=outer)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            return None
        finally:
            os.close(outer)
    return directory


def _met(directory: int, rule: Rule) -> list[str]:
    names = _names(directory) if rule.is_pattern else [rule.name]
    return sorted(name for name in names if rule.meets(name) and _holds(directory, name))


def _names(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def _holds(directory: int, name: str) -> bool:
    """Something, and not the overlay's mark for what was removed of the template."""
    try:
        seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return False
    return not (S_ISCHR(seen.st_mode) and seen.st_rdev == 0)


def _shown(rule: Rule, name: str) -> str:
    path = "/".join(("", *rule.parent, name))
    return os.fsencode(path).decode("utf-8", "backslashreplace")
