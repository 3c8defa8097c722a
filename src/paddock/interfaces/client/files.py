"""The files of a sandbox: read, written, listed, moved, removed, watched."""

from collections.abc import AsyncIterator, Sequence

from paddock.domain.errors import Conflict, NotFound, Unavailable
from paddock.interfaces.client.following import messages, streaming
from paddock.interfaces.client.results import FileChange, FileInfo, read
from paddock.interfaces.client.server import Query
from paddock.interfaces.client.transfers import AsyncTransfers, Content, at, sent

_PAGE = 1000


class AsyncFiles(AsyncTransfers):
    """A sandbox's files. A relative path starts at the home of the user, which is the sandbox's
    own unless `user` says whose rights count. A sandbox that sleeps is read asleep where that can
    be had; `wake` starts it where it cannot, and for what is written. Conflict otherwise."""

    async def read(
        self, path: str, *, user: str = "", wake: bool = False, encoding: str = "utf-8"
    ) -> str:
        """A file's content as text."""
        return (await self.read_bytes(path, user=user, wake=wake)).decode(encoding)

    async def read_bytes(self, path: str, *, user: str = "", wake: bool = False) -> bytes:
        """A file's content."""
        pieces = [piece async for piece in self.read_stream(path, user=user, wake=wake)]
        return b"".join(pieces)

    async def write(
        self, path: str, data: Content, *, user: str = "", wake: bool = False
    ) -> FileInfo:
        """Write a file, with the directories above it: text, bytes, a file object, or pieces as
        they come, of any size. It is whole afterwards, or as it was before."""
        body, once = sent(data)
        answer = await self._server.call(
            "PUT", f"{self._path}/files", query=at(path, user, wake), body=body, once=once
        )
        return read(FileInfo, answer)

    async def list(
        self,
        path: str = ".",
        *,
        depth: int = 1,
        exclude: Sequence[str] | None = None,
        user: str = "",
        wake: bool = False,
    ) -> Sequence[FileInfo]:
        """What is in a directory, so many levels deep; as scan() has it, but all at once."""
        found = self.scan(path, depth=depth, exclude=exclude, user=user, wake=wake)
        return [each async for each in found]

    async def scan(
        self,
        path: str = ".",
        *,
        depth: int = 1,
        exclude: Sequence[str] | None = None,
        user: str = "",
        wake: bool = False,
    ) -> AsyncIterator[FileInfo]:
        """What is in a directory, page by page as it is read on: sorted, each directory before
        what is in it. Directories of the names in `exclude` are listed but not entered; those of
        the server's setting `files.excluded` unless that is given."""
        names = None if exclude is None else (list(exclude) or [""])
        query: Query = {**at(path, user, wake), "depth": depth, "exclude": names}
        async for item in self._server.pages(f"{self._path}/files/list", query, _PAGE):
            yield read(FileInfo, item)

    async def stat(self, path: str, *, user: str = "", wake: bool = False) -> FileInfo:
        return await self._stat(at(path, user, wake))

    async def exists(self, path: str, *, user: str = "", wake: bool = False) -> bool:
        try:
            await self._stat(at(path, user, wake))
        except NotFound as error:
            if await self._is_here():
                return False
            raise error from None
        return True

    async def make_dir(self, path: str, *, user: str = "") -> FileInfo:
        """With those above it; one that is there is no error."""
        wish = {"path": path, "user": user}
        try:
            answer = await self._server.call(
                "POST", f"{self._path}/files/directory", json=wish, repeatable=True
            )
        except Conflict:
            found = await self._stat(at(path, user))
            if not found.is_dir:
                raise
            return found
        return read(FileInfo, answer)

    async def move(self, source: str, destination: str, *, user: str = "") -> FileInfo:
        """Move or rename; a file at the destination is replaced."""
        wish = {"source": source, "destination": destination, "user": user}
        return read(
            FileInfo, await self._server.call("POST", f"{self._path}/files/move", json=wish)
        )

    async def remove(self, path: str, *, user: str = "") -> None:
        """A file, or a directory with everything in it. What is not there is no error."""
        await self._server.call("DELETE", f"{self._path}/files", query=at(path, user))

    async def watch(
        self, path: str = ".", *, recursive: bool = False, user: str = ""
    ) -> AsyncIterator[FileChange]:
        """What changes in a directory from now on. Unavailable when the connection breaks,
        because nobody knows what happened meanwhile: list it, and watch again."""
        query = {"path": path, "recursive": recursive, "user": user}
        call = streaming("GET", f"{self._path}/files/watch", query=query)
        async for message in messages(self._server, call):
            if message["type"] == "change":
                yield read(FileChange, message)
        raise Unavailable(
            f"the watch of {path} ended", remediation="list the directory, and watch again"
        )
