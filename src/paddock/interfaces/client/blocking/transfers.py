"""Content of any size between this machine and a sandbox, in bounded memory.

Written by scripts/blocking.py; do not edit.
"""

import os
from collections.abc import Iterator

from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.results import Transfer
from paddock.interfaces.client.transfers import AsyncTransfers, Told


class Transfers:
    """Files and whole directories, in and out."""

    _inner: AsyncTransfers

    def __init__(self, inner: AsyncTransfers) -> None:
        self._inner = inner

    def read_stream(self, path: str, *, user: str = "", wake: bool = False) -> Iterator[bytes]:
        """A file's content as it comes. When the connection breaks it goes on where it was;
        Conflict when the file was changed meanwhile, so that no two versions are ever mixed."""
        return portal().each(self._inner.read_stream(path, user=user, wake=wake))

    def upload(
        self,
        local: str | os.PathLike[str],
        path: str,
        *,
        user: str = "",
        wake: bool = False,
        progress: Told | None = None,
    ) -> Transfer:
        """A file becomes the one at `path`, a directory's content becomes part of that at `path`;
        permissions and links are kept. What in it is neither file, directory nor link is skipped.
        """
        return portal().run(
            self._inner.upload(local, path, user=user, wake=wake, progress=progress)
        )

    def download(
        self,
        path: str,
        local: str | os.PathLike[str],
        *,
        user: str = "",
        wake: bool = False,
        progress: Told | None = None,
    ) -> Transfer:
        """A file becomes the one at `local`, a directory's content becomes part of that there.
        Nothing of it is ever written outside of `local`."""
        return portal().run(
            self._inner.download(path, local, user=user, wake=wake, progress=progress)
        )
