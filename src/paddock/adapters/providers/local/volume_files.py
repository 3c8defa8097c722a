"""The files of a volume, from outside of all sandboxes."""

import asyncio
import errno
import os
import posixpath
import secrets
import shutil
import stat
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.host import rooted
from paddock.adapters.providers.local.storage import Storage
from paddock.adapters.providers.local.storage.faults import explain
from paddock.domain.errors import Conflict, InvalidRequest, LimitExceeded, NotFound
from paddock.ports.volumes import Attributes, EntryKind, VolumeEntry

USER = 1000
"""The user of sandboxes, to whom belongs what nobody else is named for."""
_IDS = 65_536
_PIECE = 1 << 20
_MOST_ENTRIES = 100_000
_DEEPEST = 64
_KINDS = {
    stat.S_IFREG: EntryKind.FILE,
    stat.S_IFDIR: EntryKind.DIRECTORY,
    stat.S_IFLNK: EntryKind.SYMLINK,
}
_Entries = list[VolumeEntry]
_NO_WAY = (errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.EXDEV)


@dataclass(frozen=True, slots=True)
class LocalVolumeFiles:
    """The port's `VolumeFiles`. Every call looks at the directory anew, and holds nothing."""

    storage: Storage
    place: Path
    """The volume; its files are in `upper`."""
    shift: int
    """What is added to ids on this host."""

    async def used_bytes(self) -> int:
        return await asyncio.to_thread(self.storage.usage, self.place)

    async def stat(self, path: str) -> VolumeEntry:
        return await asyncio.to_thread(self._stat, path)

    async def list(self, path: str, depth: int = 1) -> Sequence[VolumeEntry]:
        return await asyncio.to_thread(self._list, path, depth)

    async def make_dir(
        self, path: str, wanted: Attributes, *, parents: bool = False
    ) -> VolumeEntry:
        return await asyncio.to_thread(self._make_dir, path, wanted, parents=parents)

    async def change(self, path: str, wanted: Attributes) -> VolumeEntry:
        return await asyncio.to_thread(self._change, path, wanted)

    async def remove(self, path: str) -> None:
        await uncancelled(asyncio.to_thread(self._remove, path))

    async def read(self, path: str) -> tuple[int, AsyncIterator[bytes]]:
        descriptor = await asyncio.to_thread(self._open_file, path)
        return os.fstat(descriptor).st_size, _pieces(descriptor)

    async def write(
        self, path: str, content: AsyncIterable[bytes], wanted: Attributes, *, force: bool = False
    ) -> VolumeEntry:
        draft = await asyncio.to_thread(self._begin, path, force=force)
        try:
            async for piece in content:
                with self._explained(path):
                    await asyncio.to_thread(draft.add, piece)
            return await uncancelled(asyncio.to_thread(self._finish, draft, wanted))
        finally:
            await uncancelled(asyncio.to_thread(draft.discard))

    @contextmanager
    def _root(self, path: str) -> Iterator[int]:
        with self._explained(path), rooted.opened_root(self.place / "upper") as root:
            yield root

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise InvalidRequest(f"{path[:200]!r} is no path: {error}") from None
        except FileNotFoundError:
            raise NotFound(f"there is no {path[:200]} in the volume") from None
        except FileExistsError:
            raise Conflict(f"there is already a {path[:200]} in the volume") from None
        except OSError as error:
            if error.errno in _NO_WAY:
                raise InvalidRequest(
                    f"{path[:200]} in the volume: {os.strerror(error.errno)}"
                ) from None
            if error.errno == errno.ENOTEMPTY:
                raise Conflict(f"{path[:200]} in the volume is written to meanwhile") from None
            # Without the host path: a member reads the error.
            bare = OSError(error.errno, error.strerror)
            raise explain(bare, Path(f"volume {self.place.name}")) from error

    def _stat(self, path: str) -> VolumeEntry:
        with self._root(path) as root:
            return self._seen(root, path)

    def _seen(self, root: int, path: str) -> VolumeEntry:
        with rooted.opened(root, path, os.O_PATH | os.O_NOFOLLOW) as found:
            seen = os.fstat(found)
            # A link that is open itself is read by no name.
            link = os.readlink(b"", dir_fd=found) if stat.S_ISLNK(seen.st_mode) else b""
            return self._entry(rooted.plain(path), seen, os.fsdecode(link))

    def _entry(self, path: str, seen: os.stat_result, target: str = "") -> VolumeEntry:
        return VolumeEntry(
            name=posixpath.basename(path),
            path=path,
            kind=_KINDS.get(stat.S_IFMT(seen.st_mode), EntryKind.UNKNOWN),
            size=seen.st_size,
            mode=stat.S_IMODE(seen.st_mode),
            uid=max(0, seen.st_uid - self.shift),
            gid=max(0, seen.st_gid - self.shift),
            accessed_at=seen.st_atime,
            modified_at=seen.st_mtime,
            changed_at=seen.st_ctime,
            target=target,
        )

    def _list(self, path: str, depth: int) -> Sequence[VolumeEntry]:
        with (
            self._root(path) as root,
            rooted.opened(root, path, os.O_RDONLY | os.O_DIRECTORY) as directory,
        ):
            found: _Entries = []
            self._gather(directory, rooted.plain(path), min(depth, _DEEPEST), found)
            return found

    def _gather(self, directory: int, path: str, depth: int, found: _Entries) -> None:
        for name in sorted(os.listdir(directory)):
            try:
                seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
                link = os.readlink(name, dir_fd=directory) if stat.S_ISLNK(seen.st_mode) else ""
            except (FileNotFoundError, OSError):
                continue  # it went meanwhile
            if len(found) >= _MOST_ENTRIES:
                raise LimitExceeded(
                    f"there are more than {_MOST_ENTRIES} entries",
                    remediation="list less deep, or a directory of it",
                )
            below = posixpath.join(path, name)
            found.append(self._entry(below, seen, link))
            if depth > 1 and stat.S_ISDIR(seen.st_mode):
                self._descend(directory, name, below, depth=depth - 1, found=found)

    def _descend(
        self, directory: int, name: str, path: str, *, depth: int, found: _Entries
    ) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            inner = os.open(name, flags, dir_fd=directory)
        except OSError:
            return  # it is another thing by now
        try:
            self._gather(inner, path, depth, found)
        finally:
            os.close(inner)

    def _make_dir(self, path: str, wanted: Attributes, *, parents: bool) -> VolumeEntry:
        with self._root(path) as root:
            if parents:
                self._make_parents(root, path)
            try:
                self._make_one(root, path, wanted)
            except FileExistsError:
                if not parents or self._seen(root, path).kind is not EntryKind.DIRECTORY:
                    raise
            return self._seen(root, path)

    def _make_parents(self, root: int, path: str) -> None:
        names = rooted.plain(path).strip("/").split("/")
        for count in range(1, len(names)):
            try:
                self._make_one(root, "/".join(names[:count]), Attributes())
            except FileExistsError:
                continue

    def _make_one(self, root: int, path: str, wanted: Attributes) -> None:
        with rooted.opened_parent(root, path) as (parent, name):
            os.mkdir(name, 0o700, dir_fd=parent)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            made = os.open(name, flags, dir_fd=parent)
            try:
                self._give(made, wanted, 0o755)
            finally:
                os.close(made)

    def _give(self, descriptor: int, wanted: Attributes, mode: int) -> None:
        """To whom it shall belong; the mode last, because a new owner takes bits of it away."""
        os.fchown(descriptor, self._host_id(wanted.uid), self._host_id(wanted.gid))
        os.fchmod(descriptor, _mode(wanted.mode, mode))

    def _host_id(self, wanted: int | None, unsaid: int = USER) -> int:
        number = unsaid if wanted is None else wanted
        if not 0 <= number < _IDS:
            raise InvalidRequest(
                f"{number} is no id of a user or a group", remediation=f"use 0 to {_IDS - 1}"
            )
        return self.shift + number

    def _change(self, path: str, wanted: Attributes) -> VolumeEntry:
        with (
            self._root(path) as root,
            rooted.opened(root, path, os.O_PATH | os.O_NOFOLLOW) as found,
        ):
            seen = os.fstat(found)
            if stat.S_ISLNK(seen.st_mode):
                raise InvalidRequest(
                    f"{path[:200]} is a link", remediation="change what it points to"
                )
            owners = [
                now if given is None else self._host_id(given)
                for now, given in ((seen.st_uid, wanted.uid), (seen.st_gid, wanted.gid))
            ]
            os.chown(rooted.itself(found), *owners)
            Path(rooted.itself(found)).chmod(_mode(wanted.mode, stat.S_IMODE(seen.st_mode)))
            return self._seen(root, path)

    def _remove(self, path: str) -> None:
        if rooted.plain(path) == "/":
            raise InvalidRequest("the root of a volume stays", remediation="delete the volume")
        with self._root(path) as root, rooted.opened_parent(root, path) as (parent, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=parent)
            else:
                os.unlink(name, dir_fd=parent)

    def _open_file(self, path: str) -> int:
        """Of a file only: to open a pipe could wait, and a device have effects."""
        with self._root(path) as root, rooted.opened(root, path, os.O_PATH) as found:
            if not stat.S_ISREG(os.fstat(found).st_mode):
                raise InvalidRequest(f"{path[:200]} in the volume is no file")
            return os.open(rooted.itself(found), os.O_RDONLY | os.O_CLOEXEC)

    def _begin(self, path: str, *, force: bool) -> "_Draft":
        with self._root(path) as root:
            if force:
                self._make_parents(root, path)
            with rooted.opened_parent(root, path) as (parent, name):
                if name == ".":
                    raise InvalidRequest("the root of a volume is no file")
                return _Draft(rooted.plain(path), name, os.dup(parent))

    def _finish(self, draft: "_Draft", wanted: Attributes) -> VolumeEntry:
        with self._explained(draft.path):
            before = draft.replaced()
            mode = 0o644
            if before is not None:
                mode = stat.S_IMODE(before.st_mode)
                wanted = Attributes(
                    before.st_uid - self.shift if wanted.uid is None else wanted.uid,
                    before.st_gid - self.shift if wanted.gid is None else wanted.gid,
                    wanted.mode,
                )
            self._give(draft.file, wanted, mode)
            draft.appear()
            return self._entry(draft.path, os.fstat(draft.file))


class _Draft:
    """A file that nobody sees under its name before it is whole."""

    def __init__(self, path: str, name: str, parent: int) -> None:
        self.path = path
        self._name = name
        self._parent = parent
        self._hidden = f".paddock-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self.file = os.open(self._hidden, flags, 0o600, dir_fd=parent)
        except OSError:
            os.close(parent)
            raise

    def add(self, piece: bytes) -> None:
        left = memoryview(piece)
        while left:
            left = left[os.write(self.file, left) :]

    def replaced(self) -> os.stat_result | None:
        """The file that it takes the place of, if there is one; IsADirectoryError for others."""
        try:
            found = os.stat(self._name, dir_fd=self._parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return found if stat.S_ISREG(found.st_mode) else None

    def appear(self) -> None:
        os.rename(self._hidden, self._name, src_dir_fd=self._parent, dst_dir_fd=self._parent)

    def discard(self) -> None:
        """Whatever is left of it; once it has its name that is nothing."""
        with suppress(OSError):
            os.unlink(self._hidden, dir_fd=self._parent)
        os.close(self.file)
        os.close(self._parent)


def _mode(wanted: int | None, unsaid: int) -> int:
    return stat.S_IMODE(unsaid if wanted is None else wanted)


async def _pieces(descriptor: int) -> AsyncIterator[bytes]:
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece
