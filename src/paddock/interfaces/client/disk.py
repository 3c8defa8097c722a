"""What is kept of a sandbox's disk: as a snapshot, to return to, or as an archive."""

from paddock.domain.ids import new_id
from paddock.interfaces.client.results import SandboxInfo, SnapshotInfo, read
from paddock.interfaces.client.server import Server, without_nothing


class AsyncDisk:
    """The disk of one sandbox."""

    _server: Server
    _info: SandboxInfo
    _path: str

    async def snapshot(
        self,
        name: str = "",
        *,
        memory: bool = False,
        keep: float | None = None,
        everything: bool = False,
        replace: bool = False,
    ) -> SnapshotInfo:
        """Keep its disk as it is now, also while it runs; for so many seconds, or until deleted.
        What the template's rules name is left out, unless everything is asked for. One of the same
        name is a conflict, or replaced: it goes when the new one is there."""
        wish = without_nothing(
            name=name or None,
            memory=memory or None,
            keep_s=keep,
            everything=everything or None,
            replace=replace or None,
        )
        answer = await self._server.call(
            "POST", f"{self._path}/snapshots", json=wish, key=new_id("key")
        )
        return read(SnapshotInfo, answer)

    async def restore(self, snapshot: str) -> None:
        """Give it the disk of a snapshot, by id or name; it runs afterwards, under the same id and
        name. What it has now is kept as an automatic snapshot."""
        wish = {"snapshot": snapshot}
        answer = await self._server.call("POST", f"{self._path}/restore", json=wish)
        self._info = read(SandboxInfo, answer)

    async def archive(self) -> None:
        """Keep the disk of a stopped one as a compressed copy, until `start` brings it back. It
        takes time by the disk's size, and may be repeated."""
        answer = await self._server.call("POST", f"{self._path}/archive", repeatable=True)
        self._info = read(SandboxInfo, answer)
