"""Where the work is on a disk that nobody writes to: under which names, and where those lead."""

import os
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path

from paddock.adapters.providers.local.leaving_out import descend
from paddock.adapters.providers.local.templates.contract import Root
from paddock.domain.ignoring import places_of_work

_MOST_LINKS = 40  # as many as the kernel follows


def places_on_disk(roots: Sequence[Path], user: str, workdir: str) -> tuple[str, ...]:
    """By the names, by what the disk itself says of its users, and where links lead from there.

    The roots are the layers of the disk, the uppermost first.
    """
    named = {*places_of_work(user, workdir), *_homes(roots, user.partition(":")[0])}
    return tuple(sorted(named | {end for place in named for end in _ends(roots, place)}))


def _homes(roots: Sequence[Path], user: str) -> Iterator[str]:
    for root in roots:
        lines = (Root(root).read("etc/passwd") or "").splitlines()
        for entry in (line.split(":") for line in lines):
            if len(entry) > 5 and user in (entry[0], entry[2]) and entry[5].startswith("/"):
                yield posixpath.normpath(entry[5])


def _ends(roots: Sequence[Path], place: str) -> Iterator[str]:
    """The directory itself, if there are links on the way to it."""
    waiting = place.strip("/").split("/")[::-1]
    reached: list[str] = []
    links = 0
    while waiting:
        part = waiting.pop()
        if part in ("", ".", ".."):
            del reached[len(reached) - (part == "..") :]
            continue
        target = _target(roots, reached, part)
        if target is None:
            reached.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            return  # leads nowhere inside either
        if target.startswith("/"):
            reached.clear()
        waiting += target.split("/")[::-1]
    if links and reached:
        yield "/" + "/".join(reached)


def _target(roots: Sequence[Path], directory: Sequence[str], name: str) -> str | None:
    """Where the link of that name leads; None when the uppermost that has the name has no link."""
    for root in roots:
        opened = descend(root, directory)
        if opened is None:
            continue
        try:
            return os.readlink(name, dir_fd=opened)
        except FileNotFoundError:
            continue
        except OSError:  # something else than a link
            return None
        finally:
            os.close(opened)
    return None
