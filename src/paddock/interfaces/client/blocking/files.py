"""The files of a sandbox: read, written, listed, moved, removed, watched.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Iterator, Sequence

from paddock.interfaces.client.blocking.transfers import Transfers
from paddock.interfaces.client.files import AsyncFiles
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.results import FileChange, FileInfo
from paddock.interfaces.client.transfers import Content


class Files(Transfers):
    """A sandbox's files. A relative path starts at the home of the user, which is the sandbox's
    own unless `user` says whose rights count. A sandbox that sleeps is read asleep where that can
    be had; `wake` starts it where it cannot, and for what is written. Conflict otherwise."""

    _inner: AsyncFiles

    def __init__(self, inner: AsyncFiles) -> None:
        super().__init__(inner)
        self._inner = inner

    def read(
        self, path: str, *, user: str = "", wake: bool = False, encoding: str = "utf-8"
    ) -> str:
        """A file's content as text."""
        return portal().run(self._inner.read(path, user=user, wake=wake, encoding=encoding))

    def read_bytes(self, path: str, *, user: str = "", wake: bool = False) -> bytes:
        """A file's content."""
        return portal().run(self._inner.read_bytes(path, user=user, wake=wake))

    def write(self, path: str, data: Content, *, user: str = "", wake: bool = False) -> FileInfo:
        """Write a file, with the directories above it: text, bytes, a file object, or pieces as
        they come, of any size. It is whole afterwards, or as it was before."""
        return portal().run(self._inner.write(path, data, user=user, wake=wake))

    def list(
        self,
        path: str = ".",
        *,
        depth: int = 1,
        exclude: Sequence[str] | None = None,
        user: str = "",
        wake: bool = False,
    ) -> Sequence[FileInfo]:
        """What is in a directory, so many levels deep; as scan() has it, but all at once."""
        return portal().run(
            self._inner.list(path, depth=depth, exclude=exclude, user=user, wake=wake)
        )

    def scan(
        self,
        path: str = ".",
        *,
        depth: int = 1,
        exclude: Sequence[str] | None = None,
        user: str = "",
        wake: bool = False,
    ) -> Iterator[FileInfo]:
        """What is in a directory, page by page as it is read on: sorted, each directory before
        what is in it. Directories of the names in `exclude` are listed but not entered; those of
        the server's setting `files.excluded` unless that is given."""
        return portal().each(
            self._inner.scan(path, depth=depth, exclude=exclude, user=user, wake=wake)
        )

    def stat(self, path: str, *, user: str = "", wake: bool = False) -> FileInfo:
        return portal().run(self._inner.stat(path, user=user, wake=wake))

    def exists(self, path: str, *, user: str = "", wake: bool = False) -> bool:
        return portal().run(self._inner.exists(path, user=user, wake=wake))

    def make_dir(self, path: str, *, user: str = "") -> FileInfo:
        """With those above it; one that is there is no error."""
        return portal().run(self._inner.make_dir(path, user=user))

    def move(self, source: str, destination: str, *, user: str = "") -> FileInfo:
        """Move or rename; a file at the destination is replaced."""
        return portal().run(self._inner.move(source, destination, user=user))

    def remove(self, path: str, *, user: str = "") -> None:
        """A file, or a directory with everything in it. What is not there is no error."""
        portal().run(self._inner.remove(path, user=user))

    def watch(
        self, path: str = ".", *, recursive: bool = False, user: str = ""
    ) -> Iterator[FileChange]:
        """What changes in a directory from now on. Unavailable when the connection breaks,
        because nobody knows what happened meanwhile: list it, and watch again."""
        return portal().each(self._inner.watch(path, recursive=recursive, user=user))
