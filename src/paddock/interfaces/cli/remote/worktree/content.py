"""What is in a worktree, as an archive: what git knows or would, nothing that it ignores."""

import os
import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paddock.interfaces.cli.remote.worktree.place import git

_LISTED = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")


@dataclass(frozen=True, slots=True)
class Packed:
    """What came into an archive, and what did not."""

    files: int
    bytes: int
    left_out: tuple[str, ...] = ()
    """Repositories of their own that lie in the worktree, and what is no file."""


def pack(top: Path, archive: Path) -> Packed:
    """Files as they lie there, committed or not; submodules are carried as files, too."""
    count, size, left_out = 0, 0, []
    with tarfile.open(archive, "w") as tar:
        for name in _names(top, ""):
            path = top / name
            if path.is_symlink() or path.is_file():
                member = tar.gettarinfo(path, arcname=name)
                _add(tar, member, path)
                count, size = count + 1, size + member.size
            elif path.exists():
                left_out.append(name)
    return Packed(count, size, tuple(left_out))


def _add(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    # Whose they are here means nothing there.
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    if not member.isreg():
        tar.addfile(member)
        return
    with path.open("rb") as content:
        tar.addfile(member, content)


def _names(top: Path, below: str) -> Iterator[str]:
    """Each once, in order; a deleted file is still listed and not there."""
    listed = git(top / below, *_LISTED).split(b"\0")
    for name in sorted({os.fsdecode(entry) for entry in listed if entry}):
        path = posixpath.join(below, name)
        is_submodule = not name.endswith("/") and (top / path / ".git").exists()
        if is_submodule and not (top / path).is_symlink():
            yield from _names(top, path)
        else:
            yield path
