"""What a client can make, move and remove. Nothing takes a tree with it."""

import asyncssh

from paddock.interfaces.ssh.sftp.asking import Asking, mode_of, text, told


class Changing(Asking):
    """The requests that change what is in a directory."""

    @told
    async def remove(self, path: bytes) -> None:
        name = text(path)
        await self.ask(lambda posix: posix.remove(name, self.user))

    @told
    async def rmdir(self, path: bytes) -> None:
        name = text(path)
        await self.ask(lambda posix: posix.remove(name, self.user, directory=True))

    @told
    async def mkdir(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        name, mode = text(path), mode_of(attrs)
        mode = 0o777 if mode is None else mode
        await self.ask(lambda posix: posix.make_directory(name, self.user, mode))

    @told
    async def rename(self, oldpath: bytes, newpath: bytes) -> None:
        await self._rename(oldpath, newpath, replace=False)

    @told
    async def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        await self._rename(oldpath, newpath, replace=True)

    @told
    async def symlink(self, oldpath: bytes, newpath: bytes) -> None:
        name, target = text(newpath), oldpath.decode("utf-8", "surrogateescape")
        await self.ask(lambda posix: posix.link(name, self.user, target, hard=False))

    @told
    async def link(self, oldpath: bytes, newpath: bytes) -> None:
        name, target = text(newpath), text(oldpath)
        await self.ask(lambda posix: posix.link(name, self.user, target, hard=True))

    async def _rename(self, oldpath: bytes, newpath: bytes, *, replace: bool) -> None:
        name, target = text(oldpath), text(newpath)
        await self.ask(lambda posix: posix.rename(name, self.user, target, replace=replace))
